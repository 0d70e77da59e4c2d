"""Find out, by judging again, whether a reasonable tolerance would let a failing test pass."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import Tolerances


def acceptable(report: CaseReport, names: Collection[str]) -> Mapping[str, float]:
    """Give the tolerances, as few and as small as will do, under which the comparisons ``names`` pass.

    Empty where only such would do as no longer tell a model from another: of a tensor ten times the limit, of boxes
    three or a twentieth of the page, of texts a tenth.
    """
    ladders = _ladders(report.limits)
    chosen = {name: ladder[-1] for name, ladder in ladders.items() if ladder}
    if not _pass(report, names, chosen):
        return {}
    for name in list(chosen):
        for value in (getattr(report.limits, name), *ladders[name]):
            if _pass(report, names, chosen | {name: value}):
                chosen[name] = value
                break
    return {name: value for name, value in chosen.items() if value != getattr(report.limits, name)}


def _ladders(limits: Tolerances) -> Mapping[str, list[float]]:
    """Give the values to try of each tolerance, in rising order, above the one that applies already."""
    rising: Mapping[str, tuple[float, ...]] = {
        "boxes": (1, 2, 3),
        "coords": (0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
        "text": (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1),
        "seam": tuple(limits.seam * times for times in (1.5, 2, 5, 10)),
        "logits": tuple(limits.logits * times for times in (1.5, 2, 5, 10)),
        "ties": tuple(limits.ties * times for times in (2, 4)),
    }
    return {name: [value for value in values if value > getattr(limits, name)] for name, values in rising.items()}


def _pass(report: CaseReport, names: Collection[str], overrides: Mapping[str, float]) -> bool:
    judged = judge(report.exchange, report.limits.but(overrides))
    return all(one.passes for one in judged.comparisons if one.what in names)
