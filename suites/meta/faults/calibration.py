"""Correct variants against small mistakes, by seam, in float32 on a CPU: where limits may lie, and what they let by."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from pytest_dsocr.engine.names import MINI
from pytest_dsocr.engine.session import Session
from pytest_dsocr.foundation.sealed import write_whole
from pytest_dsocr.judge.exchange import CaseReport
from suites.meta.checkout import CHECKOUT
from suites.meta.faults.all import FAULTS
from suites.meta.faults.calibration_picture import picture
from suites.meta.faults.trial import Brief, cases, hold, loaded, planted

MEASURED = Path(__file__).with_name("calibration.json")
PICTURE = CHECKOUT / "docs" / "calibration.svg"
SEAMS = ("sam", "clip", "projector", "vision_fusion", "prefill")
SMALL = ("SAM-W15", "SAM-13", "SAM-15", "CLP-02", "CLP-W1", "DTP-07", "NRM-W1", "LAY-W5", "MOE-W6", "ATD-W4", "DEC-06")


@dataclass(frozen=True)
class Measured:
    """One variant, and its largest error at each seam, blocks and layers included."""

    name: str
    correct: bool
    errors: Mapping[str, float]


@contextmanager
def _threads(count: int) -> Iterator[Brief]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield loaded()
    finally:
        torch.set_num_threads(before)


@contextmanager
def _without_onednn() -> Iterator[Brief]:
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield loaded()
    finally:
        torch.backends.mkldnn.enabled = True  # type: ignore[assignment]


def _fused() -> AbstractContextManager[Brief]:
    return nullcontext(Brief(Session.from_checkpoint(MINI, attention="sdpa")))


CORRECT: Mapping[str, Callable[[], AbstractContextManager[Brief]]] = {
    "as it was recorded": lambda: nullcontext(loaded()),
    "four threads": lambda: _threads(4),
    "fused attention": _fused,
    "no oneDNN": _without_onednn,
}


def calibrate() -> Path:
    """Measure every variant on the quick pages, the mistakes on the first of them; write and give the picture."""
    rows = []
    for name, variant in CORRECT.items():
        with variant() as subject:
            rows.append(_measured(name, [hold(subject, case, "prefill") for case in cases()], correct=True))
    for name in SMALL:
        with planted(FAULTS[name]) as subject:
            rows.append(_measured(name, [hold(subject, cases()[0], "prefill")], correct=False))
    write_whole(MEASURED, (json.dumps([asdict(one) for one in rows], indent=1) + "\n").encode())
    write_whole(PICTURE, picture([asdict(one) for one in rows]).encode())
    return PICTURE


def _measured(name: str, reports: list[CaseReport], *, correct: bool) -> Measured:
    worst: dict[str, Any] = dict.fromkeys(SEAMS, 0.0)
    for one in (one for report in reports for one in report.comparisons):
        if one.stage in worst and one.error is not None:
            worst[one.stage] = max(worst[one.stage], one.error)
    return Measured(name, correct, worst)
