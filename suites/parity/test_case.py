"""Results of the subject on one page, compared with the vendor's stage by stage.

Both sides run once for each case, and each test looks at one stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_dsocr.engine.places import family_named
from pytest_dsocr.models.spec import FUSION
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.plugin.config import own_config

if TYPE_CHECKING:
    from pytest_dsocr.compare.case import CaseReport

pytestmark = pytest.mark.dsocr


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Test each stage of the run's model."""
    if "stage" in metafunc.fixturenames:
        family = family_named(own_config(metafunc.config).checkpoint)
        metafunc.parametrize("stage", [*(stage.name for stage in family.of_views), FUSION])


@pytest.mark.dsocr_level("L1")
def test_inputs(dsocr_report: CaseReport, dsocr_check: Check) -> None:
    """Compare ids, mask, grid and pixels, bit for bit."""
    stages = ("input_ids", "images_seq_mask", "images_spatial_crop", "images_crop", "images_ori", "dtypes")
    dsocr_check(dsocr_report, *stages)


@pytest.mark.dsocr_level("L2")
def test_vision(dsocr_report: CaseReport, dsocr_check: Check, stage: str) -> None:
    """Compare features of crops and page, after every block if the subject names its modules."""
    dsocr_check(dsocr_report, stage)


@pytest.mark.dsocr_level("L2")
def test_prefill(dsocr_report: CaseReport, dsocr_check: Check) -> None:
    """Compare the logits after the prompt, and the best first tokens."""
    dsocr_check(dsocr_report, "prefill", "prefill_best")


@pytest.mark.dsocr_level("L2")
def test_decode(dsocr_report: CaseReport, dsocr_check: Check) -> None:
    """Compare the logits and the choice at every step along the reference's tokens."""
    dsocr_check(dsocr_report, "logits", "tokens")


def test_text(dsocr_report: CaseReport, dsocr_check: Check) -> None:
    """Compare the text of the subject's own loop, with its markup."""
    dsocr_check(dsocr_report, "read", "text")


def test_boxes(dsocr_report: CaseReport, dsocr_check: Check) -> None:
    """Compare the boxes: their number, places, labels and order."""
    dsocr_check(dsocr_report, "spans", "boxes")


def test_artefacts(dsocr_report: CaseReport, dsocr_check: Check) -> None:
    """Compare the files that the subject writes."""
    dsocr_check(dsocr_report, "result.mmd", "artefacts")
