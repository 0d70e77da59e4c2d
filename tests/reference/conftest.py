"""Fixtures of the tests of references: the vendor's files or a stand-in, their interpreter, and cases."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.reference.environment import find_environment
from suites.contract.pages import write_page
from tests.reference.replay import Made, make_cases
from tests.subjects.seen import seen

STAND_IN = Path(__file__).with_name("stand_in")


@dataclass(frozen=True)
class Home:
    """A folder with the vendor's files, or with the stand-in for them, and an interpreter that can run them."""

    folder: Path
    python: Path


def home_names() -> list[str]:
    """Return the stand-in, and the vendor's files if ``DSOCR_VENDOR`` and ``DSOCR_VENDOR_ENV`` are set."""
    return ["stand_in", *(["vendor"] if {"DSOCR_VENDOR", "DSOCR_VENDOR_ENV"} <= os.environ.keys() else [])]


@pytest.fixture(scope="module", params=home_names())
def home(request: pytest.FixtureRequest) -> Home:
    if request.param == "stand_in":
        return Home(STAND_IN, Path(sys.executable))
    return Home(Path(os.environ["DSOCR_VENDOR"]), find_environment(None))


@pytest.fixture(scope="session", autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Use a separate folder for temporary files, to detect files that are left behind."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder


@pytest.fixture(scope="session")
def made(tiny: Engine[Any], tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Make cases and results to record."""
    pages = tmp_path_factory.mktemp("pages")
    cases = make_cases(pages)
    return Made(pages, cases, {case.id: seen(tiny, case, keep_values=True) for case in cases})


def worker_folders(temporary: Path) -> set[Path]:
    """Return the folders of workers that are alive or did not delete them."""
    return set(temporary.glob("dsocr-worker-*"))


def copy_stand_in(folder: Path) -> Path:
    """Copy the stand-in, to plant faults in it."""
    return Path(shutil.copytree(STAND_IN, folder / "vendor", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Return a case of four tokens on a page without crops."""
    return make_case(write_page("square", tmp_path_factory.mktemp("pages")), "markdown", "tiny", 4, family=DEEPSEEK_OCR)


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """Return a folder with two pages and a file that is not a page."""
    folder = tmp_path / "pages"
    folder.mkdir()
    for page in ("tiny", "square"):
        write_page(page, folder)
    (folder / "notes.txt").write_text("no page")
    return folder
