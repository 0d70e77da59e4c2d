"""Limits of a run: those of its dtypes and keys, those that it is given, and a budget for fewer bits."""

from dataclasses import replace
from typing import Any

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.exact_types import to_builtin
from pytest_dsocr.compare.tolerances import BUDGETS, Budget, Tolerances, tolerances, usual_limits
from pytest_dsocr.records.config import Config
from pytest_dsocr.records.provenance import RecordingKey
from pytest_dsocr.reference.protocol import Reference

CPU = "cpu"


def own_limits(config: Config, subject: Any) -> Tolerances:
    """Return the limits for two outputs of the same subject."""
    return tolerances(dtype_of(subject, config.dtype)).but(config.tolerances)


def limits_of(config: Config, subject: Any, reference: Reference, key: RecordingKey) -> Tolerances:
    """Return the limits of a run between the subject, run under ``key``, and the reference."""
    limits = limits_between(subject, reference, key).but(config.tolerances)
    return replace(limits, budget=budget_of(config, subject))


def budget_of(config: Config, subject: Any) -> Budget | None:
    """Return the budget of the precision that the subject declares and of the run; None if there is neither.

    Raises:
        DsocrError: if the declared precision has no budget.
    """
    precision = to_builtin(str(getattr(subject, "precision", "") or ""))
    if precision and precision not in BUDGETS:
        raise DsocrError(f"the subject's precision is {precision!r}; declare one of {', '.join(BUDGETS)}, or none")
    return Budget.of(precision, config.quantization_budget, config.given_by.get("quantization_budget", ""))


def limits_between(subject: Any, reference: Reference, key: RecordingKey) -> Tolerances:
    """Return the limits that follow from both dtypes and keys. Outputs are exact if the keys are the same."""
    made = reference.provenance
    return usual_limits(dtype_of(subject, key.dtype), made.dtype, same_key=key == made.key, on_cpu=made.device == CPU)


def dtype_of(subject: Any, otherwise: str) -> str:
    """Return the dtype in which a subject says that it computes, or ``otherwise``."""
    dtype: str = to_builtin(str(getattr(subject, "dtype", otherwise)))
    return dtype
