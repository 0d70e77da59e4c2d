"""Laps of one page: the shortest of several readings, stages told apart, and what is judged of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from pytest_dsocr.perf.rounds import BEFORE_STEPS, ENCODERS

FEW = 8
"""Decode steps at each end that early and late are the median of."""


@dataclass(frozen=True)
class Lap:
    """One thing done once, in milliseconds."""

    wall_ms: float
    """On the host's clock."""
    stream_ms: float | None = None
    """Between events on the stream of a GPU."""
    host_ms: float | None = None
    """What the host took for its small work before and after, on average; see :mod:`.yardstick`."""


Laps = Mapping[str, Sequence[Lap]]
"""By name, as often as each was done."""


def shortest(readings: Sequence[Laps]) -> dict[str, list[Lap]]:
    """Give the shortest of each lap over several readings, since whatever disturbs one only makes it longer."""
    return {
        name: [min(same, key=lambda lap: lap.wall_ms) for same in zip(*(one[name] for one in readings), strict=False)]
        for name in readings[0]
    }


def apart(laps: Laps) -> Laps:
    """Give ``vision`` without its encoders and projector, as ``vision_fusion``, where these were timed."""
    within = [lap for name in ENCODERS for lap in laps.get(name, ())]
    if "vision" not in laps or not sum(lap.wall_ms for lap in within):
        return laps
    whole, inner = total(laps["vision"]), total(within)
    stream_ms = None if whole.stream_ms is None or inner.stream_ms is None else whole.stream_ms - inner.stream_ms
    fusion = Lap(whole.wall_ms - inner.wall_ms, stream_ms, whole.host_ms)
    named = (("vision_fusion", [fusion]) if name == "vision" else (name, laps[name]) for name in laps)
    return dict(named)


def in_quantities(laps: Laps) -> dict[str, Lap]:
    """Give what is judged of laps: sums of stages, the median decode step, an early and a late one."""
    found: dict[str, Lap] = {}
    for name, of in laps.items():
        if name == "decode":
            found |= _of_steps(of)
            continue
        found[name] = total(of)
        if name == BEFORE_STEPS[-1]:
            found["first_token"] = total([found[stage] for stage in BEFORE_STEPS if stage in found])
    return found


def in_fields(quantities: Mapping[str, Lap]) -> dict[str, dict[str, float]]:
    """Give quantities as the fields of :class:`pytest_dsocr.perf.rounds.Round`."""
    return {
        field: {name: value for name, lap in quantities.items() if (value := getattr(lap, field)) is not None}
        for field in Lap.__dataclass_fields__
    }


def total(laps: Sequence[Lap]) -> Lap:
    """Put laps together: the host's pace is the mean of theirs, by their length."""
    lengths = [lap.wall_ms for lap in laps]
    return Lap(
        sum(lengths),
        _of_all([lap.stream_ms for lap in laps], sum),
        _of_all([lap.host_ms for lap in laps], lambda hosts: fmean(hosts, lengths if any(lengths) else None)),
    )


def _of_steps(laps: Sequence[Lap]) -> dict[str, Lap]:
    found = {"decode": _middle(laps)}
    if len(laps) >= 2 * FEW:
        found["decode.early"], found["decode.late"] = _middle(laps[:FEW]), _middle(laps[-FEW:])
    return found


def _middle(laps: Sequence[Lap]) -> Lap:
    wall, stream, host = zip(*((lap.wall_ms, lap.stream_ms, lap.host_ms) for lap in laps), strict=True)
    return Lap(median(wall), _of_all(stream, median), _of_all(host, median))


def _of_all(values: Sequence[float | None], of: Callable[[Sequence[float]], float]) -> float | None:
    known = [value for value in values if value is not None]
    return of(known) if known and len(known) == len(values) else None
