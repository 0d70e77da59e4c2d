"""Odd pages, read: where text is all that a subject offers, nothing else shows how it takes such a page."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.observation.config import Config
from pytest_dsocr.plugin.check import Check

from .asked import READ

RECORDED = json.loads(READ.read_text(encoding="utf-8"))
WITH_BUDGET = 0.5
"""The share of a text that a port in fewer bits may read otherwise: a word, but not another page."""


@pytest.mark.dsocr_level("L0")
@pytest.mark.parametrize("name", RECORDED["pages"])
def test_it_reads_as_the_vendors_code(
    name: str, dsocr_config: Config, dsocr_subject: Any, tmp_path: Path, dsocr_check: Check
) -> None:
    from pytest_dsocr.cases.run import budget_of, own_limits
    from pytest_dsocr.compare.text import compare_text
    from pytest_dsocr.report.causes import OF_ODD_PAGES
    from pytest_dsocr.subjects.checked import CheckedSubject

    from .odd_pages import ODD_PAGES

    page, expected = ODD_PAGES[name], RECORDED["pages"][name]["text"]
    actual = CheckedSubject(dsocr_subject).read(page.case(name, tmp_path))
    has_budget = budget_of(dsocr_config, dsocr_subject) is not None
    limit = WITH_BUDGET if has_budget else own_limits(dsocr_config, dsocr_subject).text
    found = replace(compare_text(actual, expected, limit), what=f"{OF_ODD_PAGES}{name}")
    if found.verdict is Verdict.WRONG:
        origin = f"{expected!r} was recorded on {RECORDED['provenance']['date']} of the vendor's infer in {page.preset}"
        check = [f"check: where all other pages are right, {page.check}"] if page.check else []
        found = replace(found, details=(*check, origin, *found.details))
    dsocr_check([found])
