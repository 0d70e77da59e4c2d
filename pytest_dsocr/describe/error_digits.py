"""Relative errors as one character each, four to a decade: a tensor's tokens and an output's steps fit into a line."""

import math
from collections.abc import Iterable

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
PER_DECADE, LEAST = 4, 1e-8
"""Digits of one decade, and the error of the first digit: smaller errors are nothing."""
MOST_STEPS = 240


def digit(error: float) -> str:
    """Return the character of an error; the last one of NaN, infinity and anything large."""
    if not math.isfinite(error):
        return DIGITS[-1]
    place = 0 if error <= LEAST else math.ceil(PER_DECADE * math.log10(error / LEAST) - 1e-9)
    return DIGITS[min(place, len(DIGITS) - 1)]


def error_of(character: str) -> float:
    """Return the error of a character, rounded up; 0 of the first one."""
    place = DIGITS.index(character)
    return LEAST * 10 ** (place / PER_DECADE) if place else 0.0


def digits(errors: Iterable[float]) -> str:
    """Return a character for each error; of many, the largest of neighbours."""
    every = [*errors]
    size = math.ceil(len(every) / MOST_STEPS) or 1
    return "".join(max(map(digit, every[k : k + size]), key=DIGITS.index) for k in range(0, len(every), size))
