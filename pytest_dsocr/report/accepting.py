"""Limits that a failure may suggest, and the rule for when it suggests any.

A wider limit hides what makes a difference. So one is suggested only for a difference that rounding can make, and of
which no other cause is known or likely.
"""

from collections.abc import Collection, Mapping

from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import NAMES
from pytest_dsocr.describe.description import LEFT
from pytest_dsocr.explain.hints import names_cause
from pytest_dsocr.records.config import Level
from pytest_dsocr.report.case_result import advice

OUTPUTS = {"boxes", "coords", "text"}
"""Tolerances of outputs."""
CPU, FLOAT32 = "cpu", "float32"
EXACT = "nothing: in float32 on a CPU, rounding changes no text. A subject that computes in fewer bits says so: "
EXACT += "--dsocr-dtype=bfloat16"


def suggests(report: CaseReport, chosen: Collection[str], device: str) -> bool:
    """Return whether a failure may suggest to widen the tolerances ``chosen``.

    In float32, limits of tensors are wider than any correct implementation needs, and on a CPU outputs are exact.
    """
    can_round = report.limits.dtype != FLOAT32 or (device != CPU and OUTPUTS.issuperset(chosen))
    return can_round and not is_cause_known(report)


def is_exact_text(report: CaseReport, device: str) -> bool:
    """Return whether a text alone is compared that rounding cannot change, if the subject's dtype is the run's."""
    is_text = report.exchange.answer.level is Level.TEXT
    return is_text and report.limits.dtype == FLOAT32 and device == CPU and not is_cause_known(report)


def is_cause_known(report: CaseReport) -> bool:
    """Return whether anything names a cause of a case's first break: a proof, a mistake, a relation, or the hint."""
    found, said = report.explanation, advice(report)
    by_search = found is not None and bool(found.is_proven or found.mistakes or found.advice)
    by_readings = report.readings is not None and bool(report.readings.why)
    by_relation = report.described is not None and LEFT in report.described.text
    return by_search or by_readings or by_relation or not said or names_cause(said)


def acceptable(report: CaseReport, names: Collection[str]) -> Mapping[str, float]:
    """Return the fewest and smallest tolerances under which the comparisons ``names`` pass.

    Returns nothing if they would have to be so wide that they accept another model; see ``Tolerances.suggested``.
    """
    ladders = {name: report.limits.suggested(name) for name in NAMES}
    chosen = {name: ladder[-1] for name, ladder in ladders.items() if ladder}
    if not _pass(report, names, chosen):
        return {}
    for name in list(chosen):
        for value in (getattr(report.limits, name), *ladders[name]):
            if _pass(report, names, chosen | {name: value}):
                chosen[name] = value
                break
    return {name: value for name, value in chosen.items() if value != getattr(report.limits, name)}


def _pass(report: CaseReport, names: Collection[str], overrides: Mapping[str, float]) -> bool:
    judged = judge(report.exchange, report.limits.but(overrides))
    return all(one.passes for one in judged.comparisons if one.what in names)
