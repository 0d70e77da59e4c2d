"""A subject held to a recording of the vendor's code, as a user has it."""

from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.case import make_case
from pytest_dsocr.reference.opening import WantedReference, open_recorded
from pytest_dsocr.run.sides import ask
from pytest_dsocr.subjects.loading import close_subject, load_subject
from pytest_dsocr.subjects.protocol import Setup
from tests.recordings import FOLDER


def held(spec: str, page: str, tokens: int = 8192, of: str = MINI, on: str = "", preset: str = "gundam") -> CaseReport:
    """Hold a subject, by its name and loaded ``on`` these weights, to the recording ``of`` a checkpoint on a page."""
    [path] = [path for path in shipped("dev-20") if path.stem == page]
    reference = open_recorded([FOLDER], WantedReference(resolve(of)))
    subject = load_subject(spec, Setup(on or of))
    report = judge(
        ask(subject, reference, make_case(path, "markdown", preset, tokens, family=DEEPSEEK_OCR)), tolerances("float32")
    )
    close_subject(subject)
    return report
