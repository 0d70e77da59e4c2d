"""The examples of subjects on the shipped pages, compared with recordings of the vendor's code: what a user sees."""

from __future__ import annotations

from pytest_dsocr.cases.run import ask
from pytest_dsocr.compare.case import judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.opening import Wanted
from pytest_dsocr.reference.recording import RecordedReference
from pytest_dsocr.subjects.loading import load_subject
from pytest_dsocr.subjects.protocol import Setup
from tests.recordings import FOLDER, find_recording

EXAMPLES = "tests.subjects.examples"
SEPARATE = f"{EXAMPLES}.separate_prefill:SeparatePrefill"


def test_one_box_instead_of_many_is_laid_to_a_read_that_goes_another_way() -> None:
    """The investigation that this project began with."""
    [page] = [page for page in shipped("dev-20") if page.stem == "figures_009"]
    recording = find_recording(FOLDER, Wanted(resolve(MINI)).key, resampling())
    subject, case = load_subject(SEPARATE, Setup()), make_case(page, "markdown", "gundam")
    found = judge(ask(subject, RecordedReference(recording), case), tolerances("float32"))
    verdicts = {one.what: one.verdict for one in found.comparisons if one.verdict is not Verdict.NOT_COMPARED}
    wrong = {what for what, verdict in verdicts.items() if verdict is Verdict.WRONG}
    assert wrong == {"read", "text", "spans", "boxes"}
    assert verdicts["tokens"] is Verdict.MATCH
    assert found.divergence is not None
    assert found.divergence.first.what == "read"
    steps = len(found.exchange.expected.steps)
    assert f"disagrees with the subject's own {steps} steps" in found.divergence.first.measured
