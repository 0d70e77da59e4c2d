"""From what a user names to pages and cases: images, folders, lists, PDFs, shipped subsets."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pytest_dsocr.case import Case, make_case
from pytest_dsocr.errors import DsocrError
from pytest_dsocr.page_list import LIST_SUFFIXES, SUBSETS, is_list, read_list

IMAGE_SUFFIXES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"))
"""Of the files in a folder, those that are taken for pages; a file named by itself may have any but a list's."""
PDF_SUFFIX = ".pdf"


def make_cases(
    named: Sequence[str | Path], prompts: Sequence[str], presets: Sequence[str], max_new_tokens: int | None = None
) -> list[Case]:
    """Give every page named in every preset with every prompt, each once.

    Raises:
        DsocrError: where a page or preset is not to be had, a folder or list holds no page, or two pages have one
            name.
    """
    return distinct(
        make_case(page, prompt, preset, max_new_tokens)
        for page in pages_in(named)
        for preset in presets
        for prompt in prompts
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


def pages_in(named: Sequence[str | Path]) -> Iterator[Path]:
    """Give the pages named: files, the images in folders, by name, those on lists, a PDF's, those of a shipped subset.

    Raises:
        DsocrError: where nothing has such a name, or a folder or list holds no page, or a list one that is missing.
    """
    for path in map(Path, named):
        if path.is_dir():
            yield from _images_in(path)
        elif is_list(path):
            yield from read_list(path)
        elif path.suffix.lower() == PDF_SUFFIX and path.is_file():
            yield from _pages_of_pdf(path)
        elif path.is_file():
            yield path
        elif str(path) in SUBSETS:
            from pytest_dsocr.mini.shipped import shipped

            yield from shipped(str(path))
        else:
            raise DsocrError(
                f"there is no page {path}; give an image, a folder of images, a PDF, "
                f"a list file ({', '.join(LIST_SUFFIXES)}) or a subset of the shipped pages ({', '.join(SUBSETS)})"
            )


def _images_in(folder: Path) -> list[Path]:
    visible = (file for file in folder.iterdir() if not file.name.startswith("."))
    images = sorted(file for file in visible if file.suffix.lower() in IMAGE_SUFFIXES)
    if not images:
        raise DsocrError(f"the folder {folder} holds no images; give one that does, or image files")
    return images


def _pages_of_pdf(path: Path) -> list[Path]:
    """Render a PDF's pages, without loss, into files that are found again by its content and by how it is rendered."""
    from pytest_dsocr.contract.pdf import DEFAULT_DPI, pdf_pages

    content = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir(), f"dsocr-pdf-{os.getuid()}", f"{content}-{DEFAULT_DPI}-dpi")
    folder.mkdir(parents=True, exist_ok=True)
    rendered = []
    for number, page in enumerate(pdf_pages(path), 1):
        rendered.append(folder / f"{path.stem}-p{number:03}.png")
        part = rendered[-1].with_suffix(f".{os.getpid()}.part")
        page.save(part, format="png", compress_level=1)
        part.replace(rendered[-1])
    return rendered
