"""The pages that are shipped with the package, and the subsets of them."""

from __future__ import annotations

from pathlib import Path

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.pages.page_list import SUBSETS, BadPage, read_list

PAGES = Path(__file__).parent / "files"
"""``generated/`` and ``typeset/``, and a list file for each subset. ``ci.training.truth`` reads each page's truth."""


def shipped(subset: str) -> list[Path]:
    """Give the files of a subset's pages.

    Raises:
        DsocrError: if there is no such subset, or this installation lacks its pages.
    """
    if subset not in SUBSETS:
        raise DsocrError(f"there is no subset {subset!r} of the shipped pages; give one of {', '.join(SUBSETS)}")
    pages = []
    for page in read_list(PAGES / f"{subset}.txt"):
        if isinstance(page, BadPage):
            raise DsocrError(f"this installation lacks the shipped page {page.path}; install it again")
        pages.append(page)
    return pages
