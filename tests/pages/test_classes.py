"""What each page shows: the table is as the command writes it, and the quick pages leave out what is known alone."""

from __future__ import annotations

from tests.checkout import CHECKOUT
from tests.pages.classes import BESIDE, CLASSES, PAGE, having, table

NOT_QUICK = {
    "a side shorter than a crop",
    "more than 200 tokens",
    "a palette or grey file",
    "a span of several boxes",
    "a best token that is forbidden",
}
"""What a page of the quick ones would be slow for, or what a suite beside them asks for."""


def test_the_page_of_the_documentation_is_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == table()


def test_the_quick_pages_show_all_that_is_not_slow() -> None:
    assert {name for name in CLASSES if not having(name, "dev-3")} == NOT_QUICK


def test_what_is_in_no_page_is_asked_by_a_test_that_is_there() -> None:
    assert [test for test in BESIDE.values() if not (CHECKOUT / test).is_file()] == []


def test_none_of_the_quick_pages_is_idle() -> None:
    alone = [pages[0] for name in CLASSES if len(pages := having(name, "dev-3")) == 1]
    assert {*alone} == {"invoice_016", "slide_1011", "figures_201"}
