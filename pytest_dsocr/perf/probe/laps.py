"""From laps to what is told of them: sums of stages, and the median decode step."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

FEW = 8
"""Decode steps at each end that early and late are the median of."""


def in_quantities(laps: Mapping[str, list[float]]) -> dict[str, float]:
    """Give what is judged of a round's laps: sums of stages, the median decode step, an early and a late one."""
    found = {name: sum(laps[name]) for name in laps if name not in ("vision", "decode", "page")}
    if "vision" in laps:
        encoders = sum(found.get(name, 0.0) for name in ("sam", "clip", "projector"))
        rest = "vision_fusion" if encoders else "vision"
        found = {**_upto(found, "prefill"), rest: sum(laps["vision"]) - encoders, **_from(found, "prefill")}
        found["first_token"] = sum(laps["tokenizer"]) + sum(laps["vision"]) + found["prefill"]
    if steps := laps.get("decode"):
        found["decode"] = statistics.median(steps)
        if len(steps) >= 2 * FEW:
            found["decode.early"] = statistics.median(steps[:FEW])
            found["decode.late"] = statistics.median(steps[-FEW:])
    return {**found, **({"page": sum(laps["page"])} if "page" in laps else {})}


def _upto(found: Mapping[str, float], name: str) -> dict[str, float]:
    names = [*found]
    return {one: found[one] for one in names[: names.index(name)]}


def _from(found: Mapping[str, float], name: str) -> dict[str, float]:
    names = [*found]
    return {one: found[one] for one in names[names.index(name) :]}
