"""Invented measurements of one page on one GPU."""

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_dsocr.timing.baseline import Baseline, read
from pytest_dsocr.timing.rounds import Measured, Round
from tests.checkout import CHECKOUT

IDENTITY: Mapping[str, Any] = {
    "name": "engine",
    "commit": "ab" * 20,
    "machine": {"cpu": "A CPU", "cores": 16, "gpu": "NVIDIA H200", "gpus": 1, "driver": "580.1"},
    "versions": {"python": "3.12.3", "torch": "2.11.0", "pytest-dsocr": "0.1.0"},
    "subject": "engine",
    "setup": {"checkpoint": "mini", "dtype": "bfloat16", "attention": "eager"},
    "page": {"name": "form 001", "preset": "gundam", "max_new_tokens": 64},
}
PLACE = "nvidia-h200/engine-mini-bfloat16-eager-form-001-gundam.json"
SHIPPED = CHECKOUT / "golden" / "baselines"
PARITY = {"passes": True, "verdict": "9 MATCH", "comparisons": 9}


def identity(**parts: Any) -> dict[str, Any]:
    """Return a run's identity with some values changed, such as ``machine={"gpu": "NVIDIA B200"}``."""
    return {
        name: {**value, **parts.get(name, {})} if isinstance(value, Mapping) else parts.get(name, value)
        for name, value in IDENTITY.items()
    }


class Clock:
    """Clock that advances with each sleep, a little more or less each time, and with each reading."""

    def __init__(self, tick_ns: int = 1000) -> None:
        self.sleeps, self._now_ns, self._tick_ns = 0, 0, tick_ns

    def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        self._now_ns += int(1e9 * seconds * (1 + 0.01 * (self.sleeps % 5)))

    def perf_counter_ns(self) -> int:
        self._now_ns += self._tick_ns
        return self._now_ns


def measured(
    times_ms: Mapping[str, Sequence[float]], exact: Mapping[str, int] = {}, *, conditions: Any = (), **parts: Any
) -> Measured:
    """Return good rounds with these times."""
    rounds = tuple(
        Round(dict(zip(times_ms, row, strict=True)), conditions=dict(conditions))
        for row in zip(*times_ms.values(), strict=True)
    )
    return Measured(identity(**parts), dict(exact), rounds)


def shipped_baseline(subject: str = "engine", attention: str = "eager") -> Baseline:
    """Return a shipped baseline, at full size on an H200."""
    return read(SHIPPED / "nvidia-h200" / f"{subject}-synthetic-full-bfloat16-{attention}-invoice_016-gundam.json")
