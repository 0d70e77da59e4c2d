"""What watching the stages gives, and what it costs when it is off."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from pytest_dsocr.engine import stages as stages_module
from pytest_dsocr.engine.stages import Stages
from pytest_dsocr.families import STAGE_NAMES
from pytest_dsocr.foundation.errors import DsocrError

CPU = torch.device("cpu")


class Ranges:
    """Stands where the nvtx package stands, and writes down the ranges."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def push_range(self, name: str, domain: str) -> None:
        self.calls.append(f"push {domain}/{name}")

    def pop_range(self, domain: str) -> None:
        self.calls.append(f"pop {domain}")


def test_the_names_are_the_designs() -> None:
    assert STAGE_NAMES == (
        "tokenizer",
        "sam",
        "clip",
        "projector",
        "vision_fusion",
        "prefill",
        "decode",
        "postprocess",
    )


def test_timed_gives_every_run_in_milliseconds() -> None:
    stages = Stages(CPU, "timed")
    for pause_s in (0.02, 0.03):
        with stages("sam"):
            time.sleep(pause_s)
    with stages("clip"):
        pass
    times = stages.times()
    assert list(times) == ["sam", "clip"]
    first_ms, second_ms = times["sam"].runs_ms
    assert 20 <= first_ms < 5000, "milliseconds, whatever else the machine was doing"
    assert 30 <= second_ms < 5000
    assert times["sam"].total_ms == first_ms + second_ms
    stages.clear()
    assert stages.times() == {}


def test_a_stage_that_raises_is_still_closed() -> None:
    stages = Stages(CPU, "timed")
    with pytest.raises(ZeroDivisionError), stages("prefill"):
        _ = 1 / 0
    assert len(stages.times()["prefill"].runs_ms) == 1


@pytest.mark.parametrize("instrument", ["nvtx", "timed"])
def test_ranges_open_and_close_around_the_stage(instrument: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = Ranges()
    monkeypatch.setattr(stages_module, "_nvtx_package", lambda: ranges)
    stages = Stages(CPU, instrument)
    with stages("decode"):
        assert ranges.calls == ["push dsocr/decode"]
    assert ranges.calls == ["push dsocr/decode", "pop dsocr"]


def test_off_gives_one_context_that_does_nothing() -> None:
    stages = Stages(CPU, "off")
    assert stages("sam") is stages("decode")
    with stages("sam"):
        pass
    assert stages.times() == {}


def test_unknown_instrument_lists_the_valid_ones() -> None:
    with pytest.raises(DsocrError, match="choose one of off, nvtx, timed"):
        Stages(CPU, "loud")  # type: ignore[arg-type]
