"""The examples of subjects on the shipped pages, held against recordings of the vendor's code: what a user is told."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from pytest_dsocr.cases.run import ask
from pytest_dsocr.cases.substitution import substitute
from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.explain.hints import hint
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.opening import Wanted
from pytest_dsocr.reference.recording import RecordedReference
from pytest_dsocr.subjects.loading import load_subject
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import session_subject
from tests.recordings import FOLDER, find_recording

EXAMPLES = "tests.subjects.examples"
ONE_METHOD = f"{EXAMPLES}.one_method:OneMethod"
STAGED = f"{EXAMPLES}.staged:Staged"
BILINEAR = f"{EXAMPLES}.bilinear:Bilinear"
SEPARATE = f"{EXAMPLES}.separate_prefill:SeparatePrefill"
SWAPPED = f"{EXAMPLES}.swapped_halves:SwappedHalves"
LIMITS = tolerances("float32")
WITH_CROPS, WITHOUT_CROPS = "figures_009", "figures_201"


@cache
def report(spec: str, page: str) -> CaseReport:
    """The judgement on a shipped page, what substitution tells included."""
    recording = find_recording(FOLDER, Wanted(resolve(MINI)).key, resampling())
    subject, case = load_subject(spec, Setup()), case_of(page)
    exchange = ask(subject, RecordedReference(recording), case)
    findings = substitute(subject, judge(exchange, LIMITS), lambda: session_subject(Setup()))
    return judge(replace(exchange, findings=findings), LIMITS)


def case_of(stem: str) -> Case:
    [page] = [page for page in shipped("dev-20") if page.stem == stem]
    return make_case(page, "markdown", "gundam")


@pytest.mark.parametrize("spec", [ONE_METHOD, STAGED])
def test_a_subject_without_a_mistake_passes_and_is_compared_as_far_as_it_goes(spec: str) -> None:
    found = report(spec, WITH_CROPS)
    assert found.passes, [one.measured for one in found.comparisons if not one.passes]
    compared = {one.what for one in found.comparisons if one.verdict is not Verdict.NOT_COMPARED}
    staged = {"input_ids", "images_crop", "vision_fusion", "prefill", "logits", "tokens", "read"}
    assert compared & staged == (staged if spec == STAGED else set())
    assert compared >= {"text", "spans", "boxes"}
    assert {one.reason for one in found.comparisons if one.what not in compared} == {Reason.NOT_OFFERED}


def test_one_box_instead_of_many_is_laid_to_a_read_that_goes_another_way() -> None:
    """The investigation that this project began with."""
    found = report(SEPARATE, WITH_CROPS)
    verdicts = {one.what: one.verdict for one in found.comparisons if one.verdict is not Verdict.NOT_COMPARED}
    assert {what for what, verdict in verdicts.items() if verdict is Verdict.WRONG} == {
        "read",
        "text",
        "spans",
        "boxes",
    }
    assert verdicts["tokens"] is Verdict.MATCH
    assert found.divergence is not None
    assert found.divergence.first.what == "read"
    steps = len(found.exchange.expected.steps)
    assert f"disagrees with the subject's own {steps} steps" in found.divergence.first.measured
    boxes = [
        sum(len(span.boxes) for span in spans)
        for spans in (found.exchange.answer.spans, found.exchange.expected.output.spans)
    ]
    assert boxes[0] <= 1 < boxes[1]
    assert found.exchange.findings == ()


def test_halves_in_the_wrong_order_are_laid_to_the_fusion() -> None:
    found = report(SWAPPED, WITH_CROPS)
    assert found.divergence is not None
    assert (found.divergence.first.what, found.divergence.right) == ("vision_fusion", 12)
    assert "the whole page in front of the crops" in hint(found.divergence)
    assert found.exchange.findings == ("tokens are right when given the reference's vision features",)


@pytest.mark.parametrize(("page", "first"), [(WITH_CROPS, "images_crop"), (WITHOUT_CROPS, "images_ori")])
def test_another_filter_is_laid_to_the_pixels(page: str, first: str) -> None:
    found = report(BILINEAR, page)
    assert found.divergence is not None
    assert found.divergence.first.what == first
    assert found.exchange.findings == ()
