"""Tests of watching the stages: its results, and its cost when it is off."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from PIL import Image

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.stages import Instrument, Stages
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from tests.engine.written import synthetic_engine

CPU = torch.device("cpu")


def test_timed_gives_every_run_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_ns = iter(range(0, 10**9, 10**7))
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(clock_ns))
    stages = Stages(CPU, "timed")
    for stage in ("clip", "sam", "sam"):
        with stages(stage):
            pass
    times = stages.times()
    assert {stage: found.runs_ms for stage, found in times.items()} == {"sam": (10.0, 10.0), "clip": (10.0,)}
    assert (list(times), times["sam"].total_ms) == (["sam", "clip"], 20.0)
    stages.clear()
    assert stages.times() == {}


def test_a_stage_that_raises_is_still_closed() -> None:
    stages = Stages(CPU, "timed")
    with pytest.raises(ZeroDivisionError), stages("prefill"):
        _ = 1 / 0
    assert len(stages.times()["prefill"].runs_ms) == 1


def test_unknown_instrument_lists_the_valid_ones() -> None:
    with pytest.raises(DsocrError, match="choose one of off, nvtx, timed"):
        Stages(CPU, "loud")  # type: ignore[arg-type]


SOURCE = Path(__file__).with_name("ranges.c")
SCRIPT = """
import sys
from PIL import Image
from pytest_dsocr.engine.engine import Engine
engine = Engine.from_checkpoint("synthetic:tiny")
print([name for name in ("sympy", "torch._dynamo", "torch._inductor") if name in sys.modules])
engine.run(Image.new("RGB", (64, 64), "white"), preset="tiny", max_new_tokens=2)
"""


OF_ANY_SUBJECT = """
from pathlib import Path
from types import SimpleNamespace
import torch
from pytest_dsocr.timing.probe.page import PageProbe

class Ocr:
    def __init__(self):
        self.sam_model = torch.nn.Identity()
    def read(self, page, **how):
        return ""
    def module(self, name):
        return getattr(self, name.rpartition(".")[2])
    def inputs(self, page, **how):
        return {}
    def vision(self, inputs):
        return {"vision_fusion": self.sam_model(torch.ones(1))}
    def prefill(self, inputs, fused):
        return SimpleNamespace(logits=torch.ones(4))
    def step(self, state, token):
        return torch.ones(4)
    def text_of(self, tokens):
        return ""

PageProbe(Ocr(), Path("page.png"), prompt="", preset=None, max_new_tokens=3)._reading()
"""


def profiled_ranges(script: str, folder: Path) -> tuple[str, list[str]]:
    """Run a script with a library that acts as a profiler; return its output and its ranges."""
    library = folder / "ranges.so"
    if not (compiler := shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("needs a C compiler")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    environment = {**os.environ, "NVTX_INJECTION64_PATH": str(library)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return done.stdout, [line.removeprefix("dsocr") for line in done.stderr.splitlines() if line.startswith("dsocr")]


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    """Read a page with the engine."""
    return profiled_ranges(SCRIPT, tmp_path_factory.mktemp("ranges"))


def test_a_model_is_made_without_torchs_compiler(profiled: tuple[str, list[str]]) -> None:
    """The compiler imports sympy, which takes as long as all other loading of a small checkpoint."""
    assert profiled[0].strip() == "[]"


@pytest.mark.dsocr_slow
def test_each_stage_is_a_range_of_nvtx(profiled: tuple[str, list[str]]) -> None:
    pytest.importorskip("nvtx")
    opened = [line for line in profiled[1] if line != "-"]
    assert list(dict.fromkeys(opened)) == [
        *("+preprocess", "+tokenizer", "+sam", "+clip", "+projector"),
        *("+vision_fusion", "+prefill", "+decode", "+postprocess"),
    ]
    assert len(opened) == profiled[1].count("-")


def test_the_stopwatch_opens_ranges_around_the_stages_of_any_subject(tmp_path: Path) -> None:
    pytest.importorskip("nvtx")
    _, seen = profiled_ranges(OF_ANY_SUBJECT, tmp_path)
    before = ["+tokenizer", "-", "+vision", "+sam", "-", "-", "+prefill", "-"]
    assert seen == [*before, *["+decode", "-"] * 2, "+postprocess", "-", "+page", "-"]


LAYERS = 12
"""Number of layers of the published model."""


def calls_of(instrument: Instrument, before: Callable[[Engine[Any]], object] = lambda engine: None) -> int:
    """Count the Python and C functions that a decode step calls."""
    made, calls = synthetic_engine(DEEPSEEK_OCR, num_hidden_layers=LAYERS), 0
    engine = Engine(made.model, made.tokenizer, instrument=instrument)
    state = engine.prefill(engine.prepare(Image.new("RGB", (64, 64), "white"), prompt="free", preset="tiny"))
    engine.decode_step(state, 5)
    before(engine)

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    engine.decode_step(state, 5)
    sys.setprofile(None)
    return calls


def a_range_for_each_layer(engine: Engine[Any]) -> None:
    for layer in model_of(engine).model.decoder_layers():
        layer.forward = partial(within, engine.stages, layer.forward)  # type: ignore[method-assign]


def within(stages: Stages, forward: Callable[..., Any], *given: Any) -> Any:
    with stages("decode"):
        return forward(*given)


def test_a_steps_range_costs_under_a_hundredth_of_its_calls() -> None:
    """Calls are counted, because the time is too short to measure. A range in each layer would exceed the limit."""
    pytest.importorskip("nvtx")
    bare = calls_of("off")
    assert 0 < calls_of("nvtx") - bare < bare / 100
    assert calls_of("nvtx", a_range_for_each_layer) - bare > bare / 100
