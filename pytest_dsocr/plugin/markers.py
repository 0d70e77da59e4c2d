"""Markers, each a function. Its signature and docstring form the line that registers it.

A wrong argument or a bad value is an error that lists the valid ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.base.errors import DsocrError

if TYPE_CHECKING:
    from pytest_dsocr.compare.tolerances import Tolerances
    from pytest_dsocr.records.config import Level


def dsocr(**tolerances: float | None) -> dict[str, float]:
    """compare the subject with the reference; optionally within tolerances, such as boxes=1, coords=0.02"""
    from pytest_dsocr.compare.tolerances import check_tolerance

    found = {name: value for name, value in tolerances.items() if value is not None}
    for name, value in found.items():
        check_tolerance(name, value)
    return found


def dsocr_level(needed: str) -> Level:
    """needs a subject of this level: L0 text, L1 inputs, L2 stages and cache, L3 named modules"""
    from pytest_dsocr.plugin.option_values import level

    return level(str(needed))


def dsocr_gpu() -> None:
    """needs a GPU"""


def dsocr_vendor() -> None:
    """needs the vendor's Python files: --dsocr-reference=FOLDER"""


def dsocr_perf(*, max_slowdown: float | None = None, stage: str | None = None) -> dict[str, float]:
    """measures time or memory; a stage, or each, may be slower by this share: max_slowdown=0.05"""
    if max_slowdown is None and stage is not None:
        raise DsocrError(
            f"the marker dsocr_perf names the stage {stage!r} and no limit; give max_slowdown=0.05 as well"
        )
    from pytest_dsocr.plugin.option_values import max_slowdown as read

    return {} if max_slowdown is None else dict([read(f"{stage}={max_slowdown}" if stage else str(max_slowdown))])


def dsocr_slow() -> None:
    """takes far longer than most tests; leave such tests out: -m 'not dsocr_slow'"""


MARKERS: Mapping[str, Callable[..., Any]] = {
    one.__name__: one for one in (dsocr, dsocr_level, dsocr_gpu, dsocr_vendor, dsocr_perf, dsocr_slow)
}


def registration_lines() -> list[str]:
    """Return the lines that ``pytest --markers`` shows."""
    return [f"{name}{_signature(marker)}: {marker.__doc__}" for name, marker in MARKERS.items()]


def arguments_of(mark: pytest.Mark) -> Any:
    """Call a marker's function with the marker's arguments; raise ``DsocrError`` on a wrong argument or a bad value."""
    marker = MARKERS[mark.name]
    try:
        bound = inspect.signature(marker).bind(*mark.args, **mark.kwargs)
    except TypeError as error:
        valid = _signature(marker) or "no arguments"
        raise DsocrError(f"the marker {mark.name} does not fit ({error}); it takes {valid}") from error
    return marker(*bound.args, **bound.kwargs)


def within_markers(limits: Tolerances, test: pytest.Item) -> Tolerances:
    """Return limits with the tolerances of the test's markers, the nearest last."""
    for mark in reversed(list(test.iter_markers("dsocr"))):
        limits = limits.but(arguments_of(mark))
    return limits


def is_ours(item: pytest.Item) -> bool:
    """Return whether a test is ours: it uses our fixtures or the marker ``dsocr``."""
    fixtures = getattr(item, "fixturenames", ())
    return any(name.startswith("dsocr_") for name in fixtures) or item.get_closest_marker("dsocr") is not None


def check_markers(item: pytest.Item) -> None:
    """Raise a ``DsocrError`` that names the test if one of our markers has wrong arguments."""
    for mark in item.iter_markers():
        if mark.name in MARKERS:
            try:
                arguments_of(mark)
            except DsocrError as error:
                raise DsocrError(f"{item.nodeid}: {error}") from error


def _signature(marker: Callable[..., Any]) -> str:
    names = ", ".join(name for name in marker.__annotations__ if name != "return")
    return f"({names})" if names else ""
