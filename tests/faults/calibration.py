"""Correct variants against small mistakes, by seam, for a device and dtype: where limits may lie."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from pytest_dsocr.compare.case import CaseReport, Exchange, judge
from pytest_dsocr.compare.tokens import gap_ulps
from pytest_dsocr.compare.tolerances import OF_ONE_KEY, Tolerances, tolerances
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.config import Setup
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.reference.opening import Wanted
from pytest_dsocr.reference.recording import RecordedReference
from pytest_dsocr.reference.session import SessionRuntime
from pytest_dsocr.subjects.follow import follow
from tests.checkout import CHECKOUT
from tests.faults.outcome import of_catalogue, of_exam
from tests.faults.trial import PAGES, Brief, Upto, cases
from tests.recordings import FOLDER, find_recording

MEASURED = Path(__file__).with_name("calibration.json")
LAYERS = "layers"
"""Of the decoder; what ``prefill`` gives are logits."""
SEAMS = ("sam", "clip", "projector", "vision_fusion", LAYERS, "prefill", "logits")


@dataclass(frozen=True)
class Measured:
    """One variant, and its largest error at each seam, blocks and layers included."""

    name: str
    correct: bool
    errors: Mapping[str, float]
    ties: float
    """The largest distance, in ULP, of two tokens one of which it chose where the reference chose the other."""


Variant = Callable[[Setup], AbstractContextManager[Brief]]


def _session(**options: Any) -> Variant:
    def made(setup: Setup) -> AbstractContextManager[Brief]:
        how = {"device": setup.device, "dtype": setup.dtype, "attention": setup.attention, **options}
        return nullcontext(Brief(Engine.from_checkpoint(setup.checkpoint, **how)))

    return made


def _where(change: Callable[[], Callable[[], None]]) -> Variant:
    """Return the session while torch is set otherwise; ``change`` sets it, and gives what sets it back."""

    @contextmanager
    def made(setup: Setup) -> Iterator[Brief]:
        undo = change()
        try:
            with _session()(setup) as subject:
                yield subject
        finally:
            undo()

    return made


def _four_threads() -> Callable[[], None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    return lambda: torch.set_num_threads(before)


def _without_onednn() -> Callable[[], None]:
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    return lambda: setattr(torch.backends.mkldnn, "enabled", True)


def _whole_sums() -> Callable[[], None]:
    of_products = torch.backends.cuda.matmul
    of_products.allow_bf16_reduced_precision_reduction = False
    return lambda: setattr(of_products, "allow_bf16_reduced_precision_reduction", True)


@dataclass(frozen=True)
class Setting:
    """A device and a dtype, what is correct there, and what is small there."""

    title: str
    setup: Setup
    upto: Upto
    """How far a subject is asked: to the end takes time."""
    correct: Mapping[str, Variant]
    small: tuple[str, ...]
    """Ids of planted mistakes."""
    elsewhere: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Those of ``correct`` that need a process of their own, which chooses its kernels by this environment."""
    pages: str = PAGES
    """What correct variants are measured on."""
    tokens: int | None = None
    """Of pages that no recording holds: the session is the reference, equal to the vendor's code to the bit."""

    @property
    def limits(self) -> Tolerances:
        """Those of one key."""
        dtype = self.setup.dtype
        return tolerances(dtype).but(OF_ONE_KEY.get(dtype, {}) if self.setup.device == "cpu" else {})

    @property
    def cases(self) -> tuple[Case, ...]:
        """What correct variants are measured on; mistakes are on the first of the quick pages."""
        if self.tokens is None:
            return cases(self.pages)
        return tuple(replace(case, max_new_tokens=self.tokens) for case in cases())


OF_BFLOAT16: Mapping[str, Variant] = {
    "as it was recorded": _session(),
    "fused attention": _session(attention="sdpa"),
    "fast session": _session(engine="fast"),
    "fast, fused attention": _session(engine="fast", attention="sdpa"),
    "no autocast": _session(autocast=False),
    "sums in float32": _where(_whole_sums),
    "computed in float32": _session(dtype="float32"),
}
SMALL_IN_BFLOAT16 = (
    *("SAM-13", "SAM-15", "CLP-02", "CLP-W1", "CLP-01", "NRM-W1", "HLD-64", "ATD-W4", "MOE-W6", "MOE-02"),
    *("HLD-61", "HLD-65", "HLD-55", "POS-W4", "HLD-68", "KVC-W7", "DTP-07", "HLD-44"),
)


def _kernels(torch_own: str, mkl: str, onednn: str) -> Mapping[str, str]:
    """Return the environment in which torch and its libraries use no later instructions than these."""
    return {"ATEN_CPU_CAPABILITY": torch_own, "MKL_ENABLE_INSTRUCTIONS": mkl, "ONEDNN_MAX_CPU_ISA": onednn}


AVX2 = _kernels("avx2", "AVX2", "AVX2")
IN_BFLOAT16 = replace(Setup(), device="cuda", dtype="bfloat16")
SETTINGS: Mapping[str, Setting] = {
    "cpu-float32": Setting(
        "float32 on a CPU, mini",
        Setup(),
        "prefill",
        {
            "as it was recorded": _session(),
            "four threads": _where(_four_threads),
            "fused attention": _session(attention="sdpa"),
            "no oneDNN": _where(_without_onednn),
            "AVX2": _session(),
            "AVX2, no oneDNN": _where(_without_onednn),
            "SSE4": _session(),
        },
        ("SAM-W15", "SAM-13", "SAM-15", "CLP-02", "CLP-W1", "DTP-07", "NRM-W1", "LAY-W5", "MOE-W6", "ATD-W4", "DEC-06"),
        elsewhere={
            "AVX2": AVX2,
            "AVX2, no oneDNN": AVX2,
            "SSE4": _kernels("default", "SSE4_2", "SSE41"),
        },
        pages="dev-20",
    ),
    "nvidia-h200-bfloat16": Setting("bfloat16 on an H200, mini", IN_BFLOAT16, "read", OF_BFLOAT16, SMALL_IN_BFLOAT16),
    "nvidia-h200-bfloat16-full": Setting(
        "bfloat16 on an H200, full size with random weights",
        replace(IN_BFLOAT16, checkpoint="synthetic:full"),
        "read",
        OF_BFLOAT16,
        SMALL_IN_BFLOAT16,
        tokens=128,
    ),
}


def calibrate(name: str = "cpu-float32", only: str | None = None) -> str:
    """Measure every variant of a setting on the quick pages, the mistakes on the first of them; say what was found.

    With ``only`` one correct variant is measured, and nothing is kept.
    """
    setting = SETTINGS[name]
    if only:
        return json.dumps(asdict(measure(setting, only)))
    rows = [asdict(one) for one in tqdm(_rows(setting), total=len(setting.correct) + len(setting.small), desc=name)]
    before = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}
    write_whole(MEASURED, (json.dumps({**before, name: rows}, indent=1) + "\n").encode())
    return "\n".join(f"{max(row['errors'].values()):.1e} {row['name']}" for row in rows)


def _rows(setting: Setting) -> Iterator[Measured]:
    for name in setting.correct:
        yield _in_own_process(setting, name) if name in setting.elsewhere else measure(setting, name)
    first = replace(setting, pages=PAGES).cases[0]
    with _session()(setting.setup) as subject:
        for name in setting.small:
            fault = of_exam("first")[name] if name.startswith("HLD") else of_catalogue((name,))[name]
            with fault.put(subject):
                yield _measured(name, [hold(subject, first, setting)], correct=False)


def measure(setting: Setting, name: str) -> Measured:
    """Measure a correct variant in this process."""
    with setting.correct[name](setting.setup) as subject:
        return _measured(name, [hold(subject, case, setting) for case in setting.cases], correct=True)


def _in_own_process(setting: Setting, name: str) -> Measured:
    [known] = [key for key, one in SETTINGS.items() if one is setting]
    command = [sys.executable, "-m", "tests.faults", "calibrate", known, "--only", name]
    environment = {**os.environ, **setting.elsewhere[name]}
    ran = subprocess.run(command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return Measured(**json.loads(ran.stdout))


def hold(subject: Brief, case: Case, setting: Setting) -> CaseReport:
    """Hold a subject against what is right of a page in this setting, however near they are."""
    subject.upto, expected = setting.upto, _right(case, setting.setup, recorded=setting.tokens is None)
    answer = follow(subject, case, expected, tokenizer=resolve(setting.setup.checkpoint).tokenizer)
    return judge(Exchange(case, answer, expected, 0.0, 0.0), setting.limits)


@cache
def _right(case: Case, setup: Setup, *, recorded: bool) -> Observation:
    if recorded:
        key = Wanted(resolve(setup.checkpoint), setup.device, setup.dtype, setup.attention).key
        return RecordedReference(find_recording(FOLDER, key, resampling())).observe(case)
    return _session_of(setup).observe(case)


@cache
def _session_of(setup: Setup) -> SessionRuntime:
    return SessionRuntime.load(setup.checkpoint, device=setup.device, dtype=setup.dtype, attention=setup.attention)


def _measured(name: str, reports: Sequence[CaseReport], *, correct: bool) -> Measured:
    worst: dict[str, Any] = dict.fromkeys(SEAMS, 0.0)
    for one in (one for report in reports for one in report.comparisons):
        seam = LAYERS if one.what.startswith("prefill/") else one.stage
        if seam in worst and one.error is not None:
            worst[seam] = max(worst[seam], one.error)
    return Measured(name, correct, worst, max(map(_ties, reports)))


def _ties(report: CaseReport) -> float:
    both = zip(report.exchange.answer.forced or (), report.exchange.expected.steps, strict=False)
    return max(
        (
            max(gap_ulps(best, actual.token, step.token, report.limits) for best in (actual.at_hand(step), step.best))
            for actual, step in both
            if actual.token != step.token
        ),
        default=0.0,
    )
