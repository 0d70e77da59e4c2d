"""List files: the paths of pages, one a line, relative to the list's own folder.

Empty lines and lines that begin with ``#`` are passed over.
"""

from __future__ import annotations

from pathlib import Path

from pytest_dsocr.errors import DsocrError

LIST_SUFFIXES = (".lst", ".txt")
SUBSETS = ("dev-3", "dev-20", "typeset", "all")
"""Of the shipped pages: three quick ones, the generator's twenty, those of another engine, and all of them."""


def is_list(path: Path) -> bool:
    """Tell by its suffix whether a path names a list of pages."""
    return path.suffix.lower() in LIST_SUFFIXES


def read_list(path: Path) -> list[Path]:
    """Give the pages that the list at ``path`` names, in its order.

    Raises:
        DsocrError: where the list is missing or not UTF-8, or names nothing, or a page that is not there.
    """
    pages = [_page(path, number, line.strip()) for number, line in enumerate(_lines(path), 1) if _names(line)]
    if not pages:
        raise DsocrError(f"the list {path} names no pages; write the path of one on each line")
    return pages


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DsocrError(f"the list {path} cannot be read ({error}); give a text file in UTF-8") from error


def _names(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _page(path: Path, number: int, name: str) -> Path:
    page = path.parent / name
    if not page.is_file():
        raise DsocrError(f"line {number} of {path} names {page}, which is no file; correct the line, or put it there")
    return page
