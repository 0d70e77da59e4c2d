"""What every case of parity must show."""

from __future__ import annotations

from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.compare.verdict import Verdict

INPUTS = {"input_ids", "images_seq_mask", "images_spatial_crop", "images_crop", "images_ori", "dtypes"}
ALWAYS_THERE = {
    *INPUTS,
    *("sam.page", "clip.page", "projector.page", "vision_fusion", "prefill", "prefill_best", "logits", "tokens"),
    *("text", "spans", "boxes", "result.mmd", "artefacts"),
}


def assert_all(report: CaseReport) -> None:
    """Everything was compared, and is fine."""
    assert {one.what for one in report.comparisons} >= ALWAYS_THERE
    bad = [one for one in report.comparisons if not one.passes or one.verdict is Verdict.TIE_FLIP]
    assert not bad, "\n".join(f"{one.what}: {one.verdict}: {one.measured}" for one in bad)
