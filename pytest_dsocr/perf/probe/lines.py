"""Lines of Python that are run, counted by the interpreter's own tracing: host work, without noise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

LEAST_TOKENS = 12
"""Fewer show no bend."""


class Lines:
    """How many lines ran."""

    count = 0


@contextmanager
def counted_lines() -> Iterator[Lines]:
    """Count the lines that this thread runs within; a debugger or coverage sees nothing of them."""
    lines, before = Lines(), sys.gettrace()

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        lines.count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


def lines_growth(read: Callable[[int], object], tokens: int) -> int | None:
    """Give how many lines more each token runs than the one before, from readings of three lengths.

    Args:
        read: reads the page up to so many tokens.
        tokens: those of the whole text, or the ceiling.

    Returns:
        0 where a token costs the same at any length; None where there are too few tokens to tell.
    """
    if tokens < LEAST_TOKENS:
        return None
    third = tokens // 3
    short, middle, long = (_lines_of(read, third * times) for times in (1, 2, 3))
    return (long - 2 * middle + short) // third**2


def _lines_of(read: Callable[[int], object], tokens: int) -> int:
    with counted_lines() as lines:
        read(tokens)
    return lines.count
