"""List files, the paths of pages, one a line, relative to the folder of the list; and the subsets of shipped pages.

Empty lines and lines that begin with ``#`` are ignored.
"""

from dataclasses import dataclass
from pathlib import Path

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.reading import Format, is_regular
from pytest_dsocr.base.words import did_you_mean, plain

LIST_SUFFIXES = (".lst", ".txt")
LISTS = Format(str, "give a text file with the path of a page on each line", most_bytes=2**24)
SUBSETS = ("dev-3", "dev-20", "typeset", "all")
"""The shipped pages: three quick ones, the generator's twenty, those of another typesetter, and all of them."""


@dataclass(frozen=True)
class BadPage:
    """A page that was named and cannot be opened."""

    path: Path
    why: str
    """Reason and advice in one sentence."""

    @property
    def id(self) -> str:
        """Printable name for reports."""
        return plain(self.path.name)


def is_list(path: Path) -> bool:
    """Tell by its suffix whether a path names a list of pages."""
    return path.suffix.lower() in LIST_SUFFIXES


def read_list(path: Path) -> list[Path | BadPage]:
    """Return the pages on the list at ``path``, in its order. A line that names no file is a bad page.

    Raises:
        DsocrError: if the list is missing, is not UTF-8, or names nothing.
    """
    pages = [_page(path, number, line) for number, line in LISTS.read_lines(path)]
    if not pages:
        raise DsocrError(f"the list {path} names no pages; write the path of one on each line")
    return pages


def _page(path: Path, number: int, name: str) -> Path | BadPage:
    page = path.parent / name
    why = f"line {number} of {path} names {page}, which is no file; correct the line, or put it there"
    return page if is_regular(page) else BadPage(page, why)


PAGES = Path(__file__).parent / "files"
"""``generated/`` and ``typeset/``, and a list file for each subset. Each page has a JSON file with its true text."""


def shipped(subset: str) -> list[Path]:
    """Return the files of a subset's pages; raise ``DsocrError`` if this installation lacks one."""
    pages = []
    for page in read_list(PAGES / f"{subset}.txt"):
        if isinstance(page, BadPage):
            raise DsocrError(f"this installation lacks the shipped page {page.path}; install it again")
        pages.append(page)
    return pages


def page_named(name: str | Path) -> Path:
    """Return a path; if there is no such file, return the shipped page of that name."""
    path = Path(name)
    return path if path.exists() else _shipped_by_name().get(str(path), path)


def no_page(name: str | Path) -> str:
    """Return the error message for an unknown page."""
    return (
        f"there is no page {name}; give an image, a folder of images, a PDF, a list file "
        f"({', '.join(LIST_SUFFIXES)}), a shipped page such as invoice_016, or a subset of these ({', '.join(SUBSETS)})"
        f"{did_you_mean(str(name), [*SUBSETS, *_shipped_by_name()])}"
    )


def _shipped_by_name() -> dict[str, Path]:
    return {page.stem: page for page in shipped("all")}
