"""From pages, presets and prompts on the command line to cases."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pytest_dsocr.case import Case, make_case
from pytest_dsocr.errors import DsocrError
from pytest_dsocr.mini.shipped import SUBSETS, shipped
from pytest_dsocr.page_list import LIST_SUFFIXES, is_list, read_list

IMAGE_SUFFIXES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"))
"""Of the files in a folder, those that are taken for pages; a file named by itself may have any but a list's."""


def cases_of(options: Namespace) -> list[Case]:
    """Give every page in every preset with every prompt that ``options`` name, each once.

    Raises:
        DsocrError: where a page or preset is not to be had, a folder or list holds no page, or two pages have one
            name.
    """
    return distinct(
        make_case(page, prompt, preset, options.max_new_tokens)
        for page in pages_in(options.pages)
        for preset in options.presets
        for prompt in options.prompts
    )


def distinct(cases: Iterable[Case]) -> list[Case]:
    """Give each case once.

    Raises:
        DsocrError: where two have one id: files and lines in reports would be one another's.
    """
    by_id: dict[str, Case] = {}
    for case in cases:
        other = by_id.setdefault(case.id, case)
        if other != case:
            raise DsocrError(f"{other.page} and {case.page} are both {case.id}; give pages of different names")
    return list(by_id.values())


def pages_in(named: Sequence[Path]) -> Iterator[Path]:
    """Give the pages named: files, the images in folders, by name, those on lists, and the shipped ones of a subset.

    Raises:
        DsocrError: where nothing has such a name, or a folder or list holds no page, or a list one that is missing.
    """
    for path in named:
        if path.is_dir():
            yield from _images_in(path)
        elif is_list(path):
            yield from read_list(path)
        elif path.is_file():
            yield path
        elif str(path) in SUBSETS:
            yield from shipped(str(path))
        else:
            raise DsocrError(
                f"there is no page {path}; give an image, a folder of images, a list file ({', '.join(LIST_SUFFIXES)}) "
                f"or a subset of the shipped pages ({', '.join(SUBSETS)})"
            )


def _images_in(folder: Path) -> list[Path]:
    visible = (file for file in folder.iterdir() if not file.name.startswith("."))
    images = sorted(file for file in visible if file.suffix.lower() in IMAGE_SUFFIXES)
    if not images:
        raise DsocrError(f"the folder {folder} holds no images; give one that does, or image files")
    return images
