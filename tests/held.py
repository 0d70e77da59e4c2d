"""A subject held to a recording of the vendor's code, as a user has it."""

from pytest_dsocr.cases.run import ask
from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import tolerances
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


def held(
    spec: str,
    page: str,
    weights: str = MINI,
    max_new_tokens: int = 8192,
    *,
    recorded: str = MINI,
    preset: str = "gundam",
) -> CaseReport:
    """Hold a subject, by its name and on these weights, to a checkpoint's recording of one of the shipped pages."""
    [path] = [path for path in shipped("dev-20") if path.stem == page]
    checkpoint = resolve(recorded)
    found = find_recording(FOLDER, Wanted(checkpoint).key, resampling())
    reference = RecordedReference(found, tokenizer=lambda: checkpoint.tokenizer)
    subject = load_subject(spec, Setup(weights))
    case = make_case(path, "markdown", preset, max_new_tokens)
    report = judge(ask(subject, reference, case), tolerances("float32"))
    close_subject(subject)
    return report
