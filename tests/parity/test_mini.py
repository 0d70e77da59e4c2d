"""The embedded checkpoint to the last token: the session compared with the vendor's real code.

Against recordings of a page of each grid, beside those that ``suites/parity`` reads; live, where ``DSOCR_VENDOR`` names
the vendor's files, on every shipped page.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_dsocr.cases.run import ask
from pytest_dsocr.compare.case import judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract.image import load_image, resampling
from pytest_dsocr.contract.presets import crop_grid
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.opening import Wanted, open_reference
from pytest_dsocr.reference.protocol import Reference
from pytest_dsocr.subjects.session import SessionSubject
from tests.conftest import model_of
from tests.parity.checks import assert_all
from tests.recordings import FOLDER, find_recording

LIVE = os.environ.get("DSOCR_VENDOR")
RECORDING = find_recording(FOLDER, Wanted(resolve(MINI)).key, resampling())
PAGES = shipped("all")
GRIDS = ("figures_009", "receipt_011", "receipt_086", "slide_032", "letter_helvetica", "list_1003")
"""Of each that the quick pages do not have, one page."""


@pytest.fixture(scope="module")
def subject() -> SessionSubject:
    return SessionSubject(Engine.from_checkpoint(MINI))


@pytest.fixture(scope="module")
def reference() -> Iterator[Reference]:
    opened = open_reference(Path(LIVE or RECORDING.folder), Wanted(resolve(MINI)))
    yield opened
    opened.close()


@pytest.mark.parametrize("page", [page for page in PAGES if LIVE or page.stem in GRIDS], ids=lambda page: page.stem)
def test_session_is_the_vendors(subject: SessionSubject, reference: Reference, page: Path) -> None:
    report = judge(ask(subject, reference, make_case(page, "markdown", "gundam")), tolerances("float32"))
    assert_all(report)
    arch = model_of(subject.session).arch
    deep = sum("/" in one.what for one in report.comparisons)
    views = 1 + any(one.what == "sam.crops" for one in report.comparisons)
    assert deep == views * (arch.sam.layers + arch.clip.layers) + arch.decoder.num_hidden_layers


def test_every_grid_of_the_shipped_pages_is_read() -> None:
    grids = {page: crop_grid(*load_image(page).size) for page in PAGES}
    read = {grid for page, grid in grids.items() if page.stem in GRIDS or page in shipped("dev-3")}
    assert read == {*grids.values()}
