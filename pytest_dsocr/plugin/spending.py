"""What a process spent on each part of a run since it last told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

SPENT: pytest.StashKey[dict[str, float]] = pytest.StashKey()
"""Of the config: seconds by names of ``report.spent.PARTS``."""


def spend(config: pytest.Config, part: str, seconds: float) -> None:
    """Add seconds to a part."""
    spent = config.stash.setdefault(SPENT, {})
    spent[part] = spent.get(part, 0.0) + seconds


@contextmanager
def spending(config: pytest.Config, part: str) -> Iterator[None]:
    """Add the time within to a part."""
    started = time.perf_counter()
    try:
        yield
    finally:
        spend(config, part, time.perf_counter() - started)


def take(config: pytest.Config) -> dict[str, float]:
    """Give what was spent, which then counts as told."""
    spent = config.stash.get(SPENT, {})
    config.stash[SPENT] = {}
    return spent
