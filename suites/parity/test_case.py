"""A page read by the subject, compared with the vendor's reading of it, stage by stage.

The subject and the reference are asked once a case; each test looks at one stage of what they said.
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
    """Ask for each stage of the run's own model."""
    if "stage" in metafunc.fixturenames:
        family = family_named(own_config(metafunc.config).checkpoint)
        metafunc.parametrize("stage", [*(stage.name for stage in family.of_views), FUSION])


@pytest.mark.dsocr_level("L1")
def test_inputs(dsocr_report: CaseReport, dsocr_check: Check) -> None:
    """Ids, mask, grid and pixels, bit for bit."""
    stages = ("input_ids", "images_seq_mask", "images_spatial_crop", "images_crop", "images_ori", "dtypes")
    dsocr_check(dsocr_report, *stages)


@pytest.mark.dsocr_level("L2")
def test_vision(dsocr_report: CaseReport, dsocr_check: Check, stage: str) -> None:
    """Features of the crops and of the whole page; of a subject with named modules after every block."""
    dsocr_check(dsocr_report, stage)


@pytest.mark.dsocr_level("L2")
def test_prefill(dsocr_report: CaseReport, dsocr_check: Check) -> None:
    """The logits after the prompt, and the best first tokens."""
    dsocr_check(dsocr_report, "prefill", "prefill_best")


@pytest.mark.dsocr_level("L2")
def test_decode(dsocr_report: CaseReport, dsocr_check: Check) -> None:
    """The logits of every step along the reference's own tokens, and the choice there."""
    dsocr_check(dsocr_report, "logits", "tokens")


def test_text(dsocr_report: CaseReport, dsocr_check: Check) -> None:
    """What the subject reads by itself, with its markup."""
    dsocr_check(dsocr_report, "read", "text")


def test_boxes(dsocr_report: CaseReport, dsocr_check: Check) -> None:
    """How many boxes, where, under which labels, in which order."""
    dsocr_check(dsocr_report, "spans", "boxes")


def test_artefacts(dsocr_report: CaseReport, dsocr_check: Check) -> None:
    """The files that are written."""
    dsocr_check(dsocr_report, "result.mmd", "artefacts")
