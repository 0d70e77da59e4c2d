from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median


def limits_of(
    times: Mapping[str, tuple[Sequence[float], Sequence[float]]], given: Mapping[str, float]
) -> dict[str, float]:
    page = median(times["page"][0]) if "page" in times else 0.0
    return {n: max(given.get(n, given.get("*", 0.05)), 0.005 * page / median(a)) for n, (a, _) in times.items()}
