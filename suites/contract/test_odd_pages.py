"""Odd pages, read: where text is all that a subject offers, nothing else shows how it takes such a page."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.records.config import Config

from .asked import recorded

WITH_BUDGET = 0.5
"""The share of a text that a port in fewer bits may read otherwise: a word, but not another page."""


@cache
def read_by_vendor(family: ModelSpec) -> Any:
    """Return what the vendor's code reads on each page, and how it was recorded."""
    return json.loads(recorded("odd-pages.json", family).read_text(encoding="utf-8"))


@pytest.mark.dsocr_level("L0")
@pytest.mark.parametrize("name", read_by_vendor(DEEPSEEK_OCR)["pages"])
def test_it_reads_as_the_vendors_code(
    name: str, family: ModelSpec, dsocr_config: Config, dsocr_subject: Any, tmp_path: Path, dsocr_check: Check
) -> None:
    from pytest_dsocr.compare.budget import on_budget
    from pytest_dsocr.compare.text import compare_text
    from pytest_dsocr.records.names import ComparisonKind
    from pytest_dsocr.run.case import budget_of, own_limits
    from pytest_dsocr.subjects.checked import CheckedSubject

    from .odd_pages import ODD_PAGES

    known = read_by_vendor(family)
    page, expected = ODD_PAGES[name], known["pages"][name]["text"]
    actual = CheckedSubject(dsocr_subject).read(page.case(name, tmp_path, family))
    found = compare_text(actual, expected, own_limits(dsocr_config, dsocr_subject).text)
    budget = budget_of(dsocr_config, dsocr_subject)
    if budget and found.verdict is Verdict.WRONG and compare_text(actual, expected, WITH_BUDGET).passes:
        found = on_budget(found, budget.allowed)
        dsocr_check.looser["text of odd pages"] = (WITH_BUDGET, 0.0, budget.origin)
    found = replace(found, what=ComparisonKind.ODD_PAGE.name_of(name))
    if found.verdict is Verdict.WRONG:
        origin = f"{expected!r} was recorded on {known['provenance']['date']} of the vendor's infer in {page.preset}"
        check = [f"check: where all other pages are right, {page.check}"] if page.check else []
        found = replace(found, details=(*check, origin, *found.details))
    dsocr_check([found])
