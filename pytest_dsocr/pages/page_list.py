"""List files: the paths of pages, one a line, relative to the list's own folder.

Empty lines and lines that begin with ``#`` are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.printable import plain

LIST_SUFFIXES = (".lst", ".txt")
SUBSETS = ("dev-3", "dev-20", "typeset", "all")
"""The shipped pages: three quick ones, the generator's twenty, those of another typesetter, and all of them."""


@dataclass(frozen=True)
class BadPage:
    """A page that was named and cannot be opened."""

    path: Path
    why: str
    """One sentence: what is wrong, then what to do."""

    @property
    def id(self) -> str:
        """A name for reports; it can be printed."""
        return plain(self.path.name)


def is_list(path: Path) -> bool:
    """Tell by its suffix whether a path names a list of pages."""
    return path.suffix.lower() in LIST_SUFFIXES


def read_list(path: Path) -> list[Path | BadPage]:
    """Give the pages on the list at ``path``, in its order. A line that names no file is a bad page.

    Raises:
        DsocrError: if the list is missing, is not UTF-8, or names nothing.
    """
    pages = [_page(path, number, line.strip()) for number, line in enumerate(_lines(path), 1) if _names(line)]
    if not pages:
        raise DsocrError(f"the list {path} names no pages; write the path of one on each line")
    return pages


def is_file(path: Path) -> bool:
    """Tell whether there is a file, or a link to one. False if it must not be looked at."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # in a folder that is not ours, or with a zero byte in its name
        return False


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DsocrError(f"the list {path} cannot be read ({error}); give a text file in UTF-8") from error


def _names(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _page(path: Path, number: int, name: str) -> Path | BadPage:
    page = path.parent / name
    why = f"line {number} of {path} names {page}, which is no file; correct the line, or put it there"
    return page if is_file(page) else BadPage(page, why)
