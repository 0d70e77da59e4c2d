"""Fixtures of the tests of subjects."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.subjects.calls import CallWatch, watching
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.isolation.subject import IsolatedSubject
from pytest_dsocr.subjects.protocol import Setup
from suites.contract.pages import write_page
from tests.subjects.seen import seen

STAGED = "tests.hardening.misdeeds:Staged"
CASE = Case(Path("page.png"), "<image>", DEEPSEEK_OCR.presets["tiny"], 4, DEEPSEEK_OCR)
LIMIT_S = 600.0
Misdo = Callable[[str], object]


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for name in ("tiny", "halves"):
        write_page(name, folder)
    return folder


@pytest.fixture(scope="session")
def case(pages: Path) -> Case:
    return make_case(pages / "tiny.png", "free", "tiny", 6, family=DEEPSEEK_OCR)


@pytest.fixture(scope="session")
def expected(tiny: Engine[Any], case: Case) -> ReferenceResult:
    """Return the engine's own result of the case."""
    return seen(tiny, case)


@pytest.fixture
def watch() -> Iterator[CallWatch]:
    with watching([]) as watch:
        yield watch


@pytest.fixture(scope="module")
def _misdeed_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    file = tmp_path_factory.mktemp("misdeed") / "misdeed"
    file.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MISDEED_FILE", str(file))
        yield file


@pytest.fixture(scope="module")
def _staged(_misdeed_file: Path) -> Iterator[CheckedSubject]:
    subject: Any = IsolatedSubject(STAGED, Setup(), LIMIT_S)
    yield CheckedSubject(subject)
    subject.close()


@pytest.fixture
def misdo(_misdeed_file: Path) -> Iterator[Misdo]:
    """Have the subject do a deed at a stage from now on."""
    yield _misdeed_file.write_text
    _misdeed_file.write_text("")


@pytest.fixture
def staged(watch: CallWatch, misdo: Misdo, _staged: CheckedSubject) -> Iterator[CheckedSubject]:
    """Return a subject with a running process."""
    _staged.inputs(CASE)
    watch.notes.clear()
    yield _staged
    _staged.subject.limit_s = LIMIT_S
