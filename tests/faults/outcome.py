"""What a comparison with the recordings says of one planted mistake."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from pytest_dsocr.compare.case import CaseReport
from tests.faults.registry import Fault

STAGES = {
    "tokenizer": ("input_ids", "images_seq_mask", "images_spatial_crop", "images_crop", "images_ori", "dtypes"),
    "prefill": ("prefill", "prefill_best"),
    "decode": ("decode", "logits", "tokens", "policy"),
    "postprocess": ("postprocess", "text", "spans", "boxes", "result.mmd", "artefacts"),
}
"""Where a comparison, or an error, belongs to; any other stage is called as it is."""


def stage_of(name: str) -> str:
    """Give the stage of a comparison's own."""
    return next((stage for stage, names in STAGES.items() if name in names), name)


@dataclass(frozen=True)
class Outcome:
    """One mistake, and what was said of it."""

    fault: str
    killed: bool
    by: str = ""
    """The page, or the suite, that showed it first."""
    first: str = ""
    """The first comparison that is WRONG, or the error."""
    stage_right: bool = False
    hint: str = ""
    hint_right: bool = False
    changed: bool = True
    """Whether anything that is compared on these pages is other than without the mistake."""

    def to_json(self) -> dict[str, Any]:
        """Give its fields."""
        return asdict(self)


def outcome_of(fault: Fault, page: str, report: CaseReport) -> Outcome | None:
    """Say how a page shows the mistake; None where the page passes."""
    if report.divergence is not None:
        found, hint, begins = report.divergence.first, report.divergence.cause, report.divergence.begins
        named = re.search(fault.told, hint, re.I | re.S) is not None
        at = next((one for one in report.comparisons if one.what == begins), found)
        right = stage_of(at.stage) == fault.stage
        return Outcome(fault.id, True, page, begins or found.what, right, hint, right and named)
    if report.fault is not None:
        right = stage_of(report.fault.stage) == fault.stage
        return Outcome(fault.id, True, page, f"error in {report.fault.stage}", right, str(report.fault))
    return None if report.passes else Outcome(fault.id, True, page, str(report.verdict))
