"""The examples of subjects on the shipped pages, compared with recordings of the vendor's code: what a user sees."""

from pytest_dsocr.cases.run import ask
from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.opening import Wanted
from pytest_dsocr.reference.recording import RecordedReference
from pytest_dsocr.subjects.loading import close_subject, load_subject
from pytest_dsocr.subjects.protocol import Setup
from tests.recordings import FOLDER, find_recording


def held(spec: str, page: str) -> CaseReport:
    """Hold a subject, by its name, to the recording of one of the shipped pages."""
    [path] = [path for path in shipped("dev-20") if path.stem == page]
    reference = RecordedReference(find_recording(FOLDER, Wanted(resolve(MINI)).key, resampling()))
    subject = load_subject(spec, Setup())
    found = judge(ask(subject, reference, make_case(path, "markdown", "gundam")), tolerances("float32"))
    close_subject(subject)
    return found


def verdicts_of(report: CaseReport) -> dict[str, Verdict]:
    """The verdicts on what was compared."""
    return {one.what: one.verdict for one in report.comparisons if one.verdict is not Verdict.NOT_COMPARED}


def test_one_box_instead_of_many_is_laid_to_a_read_that_goes_another_way() -> None:
    """The investigation that this project began with."""
    found = held("tests.subjects.examples.separate_prefill:SeparatePrefill", "figures_009")
    verdicts = verdicts_of(found)
    wrong = {what for what, verdict in verdicts.items() if verdict is Verdict.WRONG}
    assert wrong == {"read", "text", "spans", "boxes"}
    assert verdicts["tokens"] is Verdict.MATCH
    assert found.divergence is not None
    assert found.divergence.first.what == "read"
    steps = len(found.exchange.expected.steps)
    assert f"disagrees with the subject's own {steps} steps" in found.divergence.first.measured
