"""Texts of odd pages; they show how a subject decodes and cuts a page if it offers nothing but text."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import pytest

from pytest_dsocr.compare.tolerances import BY_DTYPE, Tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.plugin.stash import CASES
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Config
from pytest_dsocr.records.page_measures import PageMeasures

from .asked import recorded

WITH_BUDGET = 0.5
"""Share of a text in which a quantized port may differ: enough for a word, and too little for another page."""


@cache
def read_by_vendor(family: ModelSpec) -> Any:
    """Return the texts that the vendor's code reads on the odd pages, with their provenance."""
    return json.loads(recorded("odd-pages.json", family).read_text(encoding="utf-8"))


class OddReading(NamedTuple):
    """Comparison of an odd page's text with the vendor's."""

    found: Comparison
    is_small: bool
    """Whether a quantized port may differ as much."""
    page: PageMeasures


def follows_tie(actual: str, page: Mapping[str, Any], limits: Tolerances) -> bool:
    """Return whether a text leaves the vendor's where, or after, the vendor's best two tokens tie within the limits."""
    bits = limits.mantissa_bits - BY_DTYPE["bfloat16"].mantissa_bits
    tie_at, is_tied = page.get("tie_at"), page["margin_ulps"] * 2**bits <= limits.ties
    return tie_at is not None and is_tied and actual[:tie_at] == page["text"][:tie_at]


@pytest.fixture(scope="module")
def read(
    family: ModelSpec,
    dsocr_config: Config,
    dsocr_subject: Any,
    tokenizer: TextTokenizer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], OddReading]:
    """Return a function that has the subject read an odd page, once."""
    from pytest_dsocr.compare.text import compare_text
    from pytest_dsocr.records.names import ComparisonKind
    from pytest_dsocr.run.limits import own_limits
    from pytest_dsocr.subjects.checked import CheckedSubject

    from .odd_pages import ODD_PAGES

    asked, limits = CheckedSubject(dsocr_subject), own_limits(dsocr_config, dsocr_subject)
    folder, pages = tmp_path_factory.mktemp("odd"), read_by_vendor(family)["pages"]

    @cache
    def compared(name: str) -> OddReading:
        case, page = ODD_PAGES[name].case(name, folder, family), pages[name]
        actual = asked.read(case)
        found = replace(compare_text(actual, page["text"], limits.text), what=ComparisonKind.ODD_PAGE.name_of(name))
        if found.verdict is Verdict.WRONG and follows_tie(actual, page, limits):
            measured = f"follows a tie at character {page['tie_at']}: {found.measured}"
            found = replace(found, verdict=Verdict.TIE_FLIP, measured=measured)
        is_small = compare_text(actual, page["text"], WITH_BUDGET).passes
        return OddReading(found, is_small, _measures(case, page["text"], tokenizer))

    return compared


def _measures(case: Case, text: str, tokenizer: TextTokenizer) -> PageMeasures:
    from pytest_dsocr.contract.image import load_image
    from pytest_dsocr.contract.presets import crop_count
    from pytest_dsocr.cost.workload import Workload

    size, tokens = load_image(case.page).size, len(tokenizer.encode(text)) + 1
    asked = size, case.prompt, case.preset, tokenizer
    work = Workload.of_prompt(*asked, generated_tokens=tokens, family=case.family)
    return PageMeasures(*size, crop_count(work.grid), work.prompt_tokens, tokens)


@pytest.mark.dsocr_level("L0")
@pytest.mark.parametrize("name", read_by_vendor(DEEPSEEK_OCR)["pages"])
def test_it_reads_as_the_vendors_code(
    name: str,
    request: pytest.FixtureRequest,
    family: ModelSpec,
    dsocr_config: Config,
    dsocr_subject: Any,
    read: Callable[[str], OddReading],
    dsocr_check: Check,
) -> None:
    from pytest_dsocr.compare.budget import on_budget
    from pytest_dsocr.run.limits import budget_of

    from .odd_pages import ODD_PAGES, shared_checks

    known, (found, is_small, dsocr_check.page) = read_by_vendor(family), read(name)
    budget = budget_of(dsocr_config, dsocr_subject)
    if budget and found.verdict is Verdict.WRONG and is_small:
        found = on_budget(found, budget.allowed)
        dsocr_check.looser["text of odd pages"] = (WITH_BUDGET, 0.0, budget.origin)
    if found.verdict is Verdict.WRONG:
        page, expected = ODD_PAGES[name], known["pages"][name]["text"]
        origin = f"{expected!r} was recorded on {known['provenance']['date']} from the vendor's infer in {page.preset}"
        is_odd = all(case.passes for case in request.config.stash.get(CASES, {}).values())
        checks = shared_checks(one for one in known["pages"] if not read(one).found.passes) if is_odd else ()
        check = [f"check: {', or '.join(checks)}"] if checks else []
        found = replace(found, details=(*check, origin, *found.details))
    dsocr_check([found])
