"""From pages, presets and prompts on the command line to cases."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_dsocr.case import Case, make_case
from pytest_dsocr.errors import DsocrError

IMAGE_SUFFIXES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"))
"""Of the files in a folder, those that are taken for pages; a file named by itself may have any."""


def cases_of(options: Namespace) -> list[Case]:
    """Give every page in every preset with every prompt that ``options`` name, each once.

    Raises:
        DsocrError: where a page or preset is not to be had, a folder holds no page, or two pages have one name.
    """
    cases = dict.fromkeys(
        make_case(page, prompt, preset, options.max_new_tokens)
        for page in pages_in(options.pages)
        for preset in options.presets
        for prompt in options.prompts
    )
    by_id: dict[str, Case] = {}
    for case in cases:
        other = by_id.setdefault(case.id, case)
        if other is not case:
            raise DsocrError(f"{other.page} and {case.page} are both {case.id}; give pages of different names")
    return list(cases)


def pages_in(paths: Sequence[Path]) -> Iterator[Path]:
    """Give the files named, and the images in the folders named, by name."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        visible = (file for file in path.iterdir() if not file.name.startswith("."))
        images = sorted(file for file in visible if file.suffix.lower() in IMAGE_SUFFIXES)
        if not images:
            raise DsocrError(f"the folder {path} holds no images; give one that does, or image files")
        yield from images
