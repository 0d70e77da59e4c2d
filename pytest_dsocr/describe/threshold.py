"""A number that parts wrong tokens from right ones, among simple properties of tokens."""

import math
from collections.abc import Mapping

from torch import Tensor

LEAST = 4
"""Number of wrong and of right tokens from which on a threshold says something."""
MOST_DIGITS = 6
TINY = 1e-9


def parted_by(properties: Mapping[str, Tensor], wrong: Tensor, right: Tensor) -> str:
    """Return the property that parts all wrong tokens from all right ones, with its threshold; empty if none does.

    Of several it is the one with the roundest number, or else the first.

    Args:
        properties: values of the tokens, by words such as ``the position``, the simplest first.
        wrong: mask of the wrong tokens.
        right: mask of the right ones; what is neither is not known.
    """
    if min(int(wrong.sum()), int(right.sum())) < LEAST:
        return ""
    found = list[tuple[int, str]]()
    for words, values in properties.items():
        own, others = values[wrong].double(), values[right].double()
        if own.max() < others.min():
            number, text = _between(float(own.max()), float(others.min())), f"{words} is below {{}}"
        elif own.min() > others.max() and values.is_floating_point():
            number, text = _between(float(others.max()), float(own.min())), f"{words} is above {{}}"
        elif own.min() > others.max():
            number, text = f"{int(own.min())}", f"{words} is {{}} or more"
        else:
            continue
        found.append((len(number), text.format(number)))
    return min(found, key=lambda one: one[0], default=(0, ""))[1]


def _between(low: float, high: float) -> str:
    """Return the number with the fewest digits between two others."""
    for digits in range(MOST_DIGITS):
        step = 10.0 ** (math.floor(math.log10(max(abs(low), abs(high)))) - digits)
        if low < (one := math.ceil(low / step + TINY) * step) < high:
            return f"{one:.6g}"
    return f"{(low + high) / 2:g}"
