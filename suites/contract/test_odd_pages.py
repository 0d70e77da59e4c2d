"""Odd pages, read: where text is all that a subject offers, nothing else shows how it takes such a page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.verdict import Verdict, not_compared
from pytest_dsocr.observation.config import Config
from pytest_dsocr.plugin.check import Check

from .odd_pages import ODD_PAGES, RECORDED

OF_FEWER_BITS = "not offered: the vendor's text of a page, by a subject that has a budget to lose"


@pytest.mark.dsocr_level("L0")
@pytest.mark.parametrize("name", ODD_PAGES)
def test_it_reads_as_the_vendors_code(
    name: str, dsocr_config: Config, dsocr_subject: Any, tmp_path: Path, dsocr_check: Check
) -> None:
    from pytest_dsocr.cases.limits import budget_of, own_limits
    from pytest_dsocr.compare.text import compare_text
    from pytest_dsocr.subjects.checked import CheckedSubject

    if budget_of(dsocr_config, dsocr_subject) is not None:
        dsocr_check([not_compared("text", Reason.NOT_OFFERED, OF_FEWER_BITS)])
        return
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    made, expected, page = recorded["provenance"], recorded["pages"][name]["text"], ODD_PAGES[name]
    said = CheckedSubject(dsocr_subject).read(page.case(name, tmp_path))
    compared = compare_text(said, expected, own_limits(dsocr_config, dsocr_subject).text)
    origin = f"{expected!r} was recorded on {made['date']} of the vendor's infer, in {page.preset}"
    if compared.verdict is Verdict.WRONG:
        compared = replace(compared, details=(f"check: that {page.check}", origin, *compared.details))
    dsocr_check([compared])
