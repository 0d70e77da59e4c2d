"""Fixtures of the tests of subjects."""

from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.reference_result import ReferenceResult
from suites.contract.pages import write_page
from tests.subjects.seen import seen


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
