"""The shipped pages: those that recordings were made of."""

from __future__ import annotations

import hashlib

import pytest

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.pages.page_list import PAGES, SUBSETS, shipped

SHA256 = "5446d4716dc83e250ad4fd1a0d2b5e982ad557714bec90fb13a97a7f0a79b84b"
"""Of the name and bytes of every page, truth and list: recordings are of these pages and no others."""


def test_their_bytes_are_those_that_were_recorded() -> None:
    found = hashlib.sha256()
    for path in sorted(path for path in PAGES.rglob("*") if path.suffix in (".png", ".json", ".txt")):
        found.update(path.relative_to(PAGES).as_posix().encode() + path.read_bytes())
    assert found.hexdigest() == SHA256


def test_subsets_are_what_their_names_say() -> None:
    assert {name: len(shipped(name)) for name in SUBSETS} == {"dev-3": 3, "dev-20": 20, "typeset": 12, "all": 34}
    assert {*shipped("dev-3")} < {*shipped("dev-20")} < {*shipped("all")}
    with pytest.raises(DsocrError, match="there is no subset 'dev-4' of the shipped pages; give one of dev-3, dev-20"):
        shipped("dev-4")
