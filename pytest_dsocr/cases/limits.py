"""How far the two sides may be apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from pytest_dsocr.compare.tolerances import BUDGETS, OF_ONE_KEY, Tolerances, tolerances
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.exact import exact
from pytest_dsocr.observation.config import Config, Setup
from pytest_dsocr.observation.provenance import Key
from pytest_dsocr.reference.opening import Wanted
from pytest_dsocr.reference.protocol import Reference


@cache
def key_of(setup: Setup) -> Key:
    """Return the key of the subject; once, for every test asks, and the real vocabulary takes a third of a second."""
    return Wanted(resolve(setup.checkpoint), setup.device, setup.dtype, setup.attention).key


def own_limits(config: Config, subject: Any) -> Tolerances:
    """Return how far a subject may be from itself."""
    return tolerances(dtype_of(config.setup, subject)).but(config.tolerances)


def limits_of(config: Config, subject: Any, reference: Reference) -> Tolerances:
    """Return how far the sides may be apart: outputs are exact where their keys are the same."""
    limits = limits_between(subject, reference, config.setup).but(config.tolerances)
    return replace(limits, budget=budget_of(config, subject))


def budget_of(config: Config, subject: Any) -> Mapping[str, float] | None:
    """Return what may be lost: by the precision that the subject declares, and by the run; None where neither says.

    Raises:
        DsocrError: where it declares a precision that has no budget.
    """
    precision = exact(str(getattr(subject, "precision", "") or ""))
    if precision and precision not in BUDGETS:
        raise DsocrError(f"the subject's precision is {precision!r}; declare one of {', '.join(BUDGETS)}, or none")
    return {**BUDGETS[precision], **config.budget} if precision else config.budget or None


def limits_between(subject: Any, reference: Reference, setup: Setup) -> Tolerances:
    """Return the limits that follow from the sides' dtypes and keys alone."""
    made = reference.provenance
    is_same = key_of(setup) == made.key
    limits = tolerances(dtype_of(setup, subject), made.dtype, same_key=is_same)
    return limits.but(OF_ONE_KEY.get(limits.dtype, {})) if is_same and made.device == "cpu" else limits


def dtype_of(setup: Setup, subject: Any) -> str:
    """Return what a subject computes in; the run's dtype where it does not say."""
    dtype: str = exact(str(getattr(subject, "dtype", setup.dtype)))
    return dtype
