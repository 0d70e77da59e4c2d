"""The examples of subjects on the shipped pages, held against recordings of the vendor's code: what a user is told."""

from __future__ import annotations

from dataclasses import replace

from pytest_dsocr.cases.run import ask
from pytest_dsocr.cases.substitution import substitute
from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.explain.hints import hint
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.opening import Wanted
from pytest_dsocr.reference.recording import RecordedReference
from pytest_dsocr.subjects.loading import load_subject
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import session_subject
from tests.recordings import FOLDER, find_recording

EXAMPLES = "tests.subjects.examples"
ONE_METHOD = f"{EXAMPLES}.one_method:OneMethod"
SEPARATE = f"{EXAMPLES}.separate_prefill:SeparatePrefill"
SWAPPED = f"{EXAMPLES}.swapped_halves:SwappedHalves"
LIMITS = tolerances("float32")
PAGE = "figures_009"
"""With crops."""


def report(spec: str) -> CaseReport:
    """The judgement on a shipped page, what substitution tells included."""
    [path] = [path for path in shipped("dev-20") if path.stem == PAGE]
    recording = find_recording(FOLDER, Wanted(resolve(MINI)).key, resampling())
    subject, case = load_subject(spec, Setup()), make_case(path, "markdown", "gundam")
    exchange = ask(subject, RecordedReference(recording), case)
    findings = substitute(subject, judge(exchange, LIMITS), lambda: session_subject(Setup()))
    return judge(replace(exchange, findings=findings), LIMITS)


def test_one_box_instead_of_many_is_laid_to_a_read_that_goes_another_way() -> None:
    """The investigation that this project began with."""
    found = report(SEPARATE)
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
    assert found.exchange.findings == ()


def test_halves_in_the_wrong_order_are_laid_to_the_fusion() -> None:
    found = report(SWAPPED)
    assert found.divergence is not None
    assert (found.divergence.first.what, found.divergence.right) == ("vision_fusion", 12)
    assert "the whole page in front of the crops" in hint(found.divergence)
    assert found.exchange.findings == ("tokens are right when given the reference's vision features",)
