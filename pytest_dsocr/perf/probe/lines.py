"""Lines of Python that are run, counted by the interpreter's own tracing: host work, without noise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from statistics import median
from types import FrameType
from typing import Any

FEW = 8
"""Tokens at each end of a page that are compared."""
LEAST_TOKENS = 12
"""Fewer show no bend of the whole reading."""
LEAST_LINES = 4
"""What a whole reading shows for sure: the text itself decides how many lines it takes to tell its boxes."""


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


def growth(values: Sequence[int]) -> int:
    """Give how much more each value is than the one before, from the medians at both ends: one that stands out is none.

    A cache that doubles its room, say, makes one step store far more than its neighbours.
    """
    few = min(FEW, len(values) // 2)
    return round((median(values[-few:]) - median(values[:few])) / (len(values) - few))


def growth_by_token(read: Callable[[], object], first_layer: Any) -> int | None:
    """Give how many lines more each token runs than the one before; None where there are too few tokens to tell.

    Args:
        read: reads the page.
        first_layer: the decoder's first module, which is called once for each token.
    """
    marks: list[int] = []
    with counted_lines() as lines:
        hook = first_layer.register_forward_pre_hook(lambda *_: marks.append(lines.count))
        try:
            read()
        finally:
            hook.remove()
    a_token = [late - early for early, late in pairwise(marks)][1:]  # the first holds the prompt
    if len(a_token) < 2 * FEW:
        return None
    return growth(a_token)


def growth_by_length(read: Callable[[int], object], tokens: int) -> int | None:
    """Give the same from readings of three lengths, where nothing tells one token from the next; only if it is large.

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
    grown = (long - 2 * middle + short) // third**2
    return grown if abs(grown) >= LEAST_LINES else 0


def _lines_of(read: Callable[[int], object], tokens: int) -> int:
    with counted_lines() as lines:
        read(tokens)
    return lines.count
