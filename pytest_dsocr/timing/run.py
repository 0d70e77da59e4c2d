"""A run of a subject: measured until each quantity is judged against the baseline, or to become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from pytest_dsocr.base.reading import Time
from pytest_dsocr.cost.roofline import Roof
from pytest_dsocr.timing import summary
from pytest_dsocr.timing.baseline import Baseline
from pytest_dsocr.timing.counts import CountChange, exact_changes, exactly, flags
from pytest_dsocr.timing.early import AGREEING
from pytest_dsocr.timing.host import host_ratio, idle_share, is_another, of_runs
from pytest_dsocr.timing.limits import ALONE, LOOKS, MOST_TAKEN, Watcher, is_over, known, limits_of, looks_at
from pytest_dsocr.timing.rounds import Measured, Round, alike
from pytest_dsocr.timing.statistics import Judgement, TimingVerdict, judge

if TYPE_CHECKING:
    from pytest_dsocr.timing.probe.page import PageProbe


@dataclass(frozen=True)
class Spread:
    """A quantity's rounds in one run, in milliseconds: the median, and the quartiles around it."""

    median_ms: Time
    low_ms: Time
    high_ms: Time

    @classmethod
    def of(cls, times_ms: Sequence[float]) -> Spread:
        """Return that of some rounds."""
        if len(times_ms) == 1:
            return cls(times_ms[0], times_ms[0], times_ms[0])
        low, middle, high = quantiles(times_ms, n=4, method="inclusive")
        return cls(middle, low, high)

    def __str__(self) -> str:
        return f"{summary.ms(self.median_ms)} ({summary.ms(self.low_ms)} to {summary.ms(self.high_ms)})"


def spreads_of(measured: Measured) -> dict[str, Spread]:
    """Return that of each quantity, over the good rounds that took it."""
    times: dict[str, list[float]] = {}
    for name, time_ms in (item for one in measured.good for item in one.wall_ms.items()):
        times.setdefault(name, []).append(time_ms)
    return {name: Spread.of(of) for name, of in times.items()}


@dataclass(frozen=True)
class PerfRun:
    """Measurement of one run, and its comparison with the baseline."""

    measured: Measured
    judgements: tuple[Judgement, ...] = ()
    baseline: Baseline | None = None
    no_baseline: str = ""
    """Why there is no baseline to compare with."""
    counts: Baseline | None = None
    """Baseline of another host, whose exact quantities apply here although its times do not."""
    accepted: Path | None = None
    """File that this run was written to as a baseline."""
    is_kept: bool = False
    """Whether pytest-benchmark keeps the times instead of a baseline."""
    roof: Roof | None = None
    """The least times on this device, where its peaks are known."""

    @property
    def changes(self) -> list[CountChange]:
        """The exact quantities that differ from the baseline's."""
        if self.counts:
            return exact_changes(exactly(self.counts.exact), exactly(self.measured.exact))
        return exact_changes(self.baseline.exact, self.measured.exact) if self.baseline else []

    @property
    def host_ratio(self) -> float:
        """Ratio of the host's time for its small work to that at the baseline; 1 without a baseline."""
        return host_ratio(self.baseline, self.measured) if self.baseline else 1.0

    def judgement(self, quantity: str) -> Judgement | None:
        """Return the judgement of a quantity, if there is one."""
        return next((one for one in self.judgements if one.quantity == quantity), None)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values: medians and verdicts by quantity, flags, changes, and sentences of it all."""
        of = self.measured
        spreads = spreads_of(of)
        return {
            "identity": dict(of.identity),
            "rounds": {"taken": len(of.rounds), "used": len(of.good)},
            "median_ms": {name: one.median_ms for name, one in spreads.items()},
            "quartiles_ms": {name: (one.low_ms, one.high_ms) for name, one in spreads.items()},
            "exact": dict(of.exact),
            "idle_share": idle_share(of),
            "host_ratio": self.host_ratio,
            "roof": summary.nearness_json(of, self.roof) if self.roof else None,
            "in_short": [
                *summary.of_run(of, self.roof),
                *summary.of_host(self.host_ratio),
                *([f"counts are those of another host's baseline, of {self.counts.made}"] if self.counts else []),
            ],
            "flags": {name: asdict(one) for name, one in flags(of.exact).items()},
            "judgements": [one.to_json() for one in self.judgements],
            "changes": [one.text for one in self.changes],
            "baseline": {"made": str(self.baseline.made), "commit": self.baseline.commit} if self.baseline else None,
            "no_baseline": self.no_baseline,
            "accepted": str(self.accepted) if self.accepted else None,
        }


def measure(
    probe: PageProbe,
    counts: Measured,
    baseline: Baseline | None,
    slower: Mapping[str, float],
    *,
    most_rounds: int = LOOKS[-1],
    rounds_alone: int = ALONE,
    on_round: Watcher = lambda what, done, total: None,
) -> tuple[Measured, tuple[Judgement, ...]]:
    """Measure a page until each quantity is judged, or ``most_rounds`` are good.

    Args:
        probe: the probe of the page.
        counts: identity and exact quantities of the measurement.
        baseline: to judge against.
        slower: allowed slow-down of quantities, where it is not the default.
        most_rounds: the limit. Spoilt rounds are replaced, up to twice as many in all.
        rounds_alone: number of rounds without a baseline.
        on_round: called during the work.
    """
    on_round("warming up", 0, most_rounds)
    probe.warm_up()

    def take() -> Round:
        """Take all, as the baseline did: alone, and with warmer caches, a stage may take less."""
        one = Round.from_json(probe.round())
        return alike(one, baseline.rounds[0]) if baseline else one

    rounds, judgements = [take()], list[Judgement]()
    looks = looks_at(len(rounds[0].wall_ms), most_rounds) if baseline else (min(rounds_alone, most_rounds),)
    for look, upto in ((0, min(AGREEING, looks[-1])), *enumerate(looks, 1)):
        while (good := sum(not one.spoilt for one in rounds)) < upto and len(rounds) < MOST_TAKEN * upto:
            found = known(judgements, [why for one in rounds for why in one.spoilt])
            on_round("; ".join(("rounds", *found)), good, looks[-1])
            rounds.append(take())
        measured = replace(counts, rounds=tuple(rounds))
        judgements = judge_run(baseline, measured, slower, look, len(looks)) if baseline else []
        if is_over(judgements) or (not good and upto >= looks[0]):
            break
    return measured, tuple(judgements)


def judge_run(before: Measured, after: Measured, slower: Mapping[str, float], look: int, looks: int) -> list[Judgement]:
    """Judge the quantities that both have, corrected for the host's speed; none if a side has no good round."""
    times = {name: of_runs(before, after, name) for name in before.quantities if name in after.quantities}
    if not times:
        return []
    judgements = judge(times, limits_of(times, slower), paired=False, look=look, looks=looks)
    ratio = host_ratio(before, after)
    if not is_another(ratio):
        return judgements
    why = f"the host takes {ratio:.2f} times as long for the same small work as it did then; let it come to rest"
    return [replace(one, pace=TimingVerdict.AMBIGUOUS, reason=why) for one in judgements]
