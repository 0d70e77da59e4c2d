"""Pixels held in fewer values: levels of a few bits, or whole multiples of a step between -1 and 1.

Shapes: N views, 3 colours, H x W pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from pytest_dsocr.base.words import count
from pytest_dsocr.describe.description import Description

BITS = range(1, 8)
MOST_STEPS = 254
"""Largest number of steps from 0 to 1 that is looked for; the 256 levels have 255."""
LEAST_VALUES = 8
"""Number of distinct values from which on a step is derived from them."""
SOME = ..., slice(None, None, 16), slice(None, None, 4)
"""Pixels that are looked at first."""
HeldValues = Callable[[Tensor, int], Tensor]
"""Return levels that are held in a number of bits."""


def _spread(levels: Tensor, bits: int) -> Tensor:
    """Cut levels to their highest bits, and spread them from 0 to 255 again by repeating these bits."""
    kept = levels.int() >> (8 - bits)
    wide = kept << (8 - bits)
    filled = bits
    while filled < 8:
        wide = wide | (kept << (8 - bits)) >> filled
        filled += bits
    return wide.float()


def _rounded(levels: Tensor, bits: int) -> Tensor:
    most: int = 2**bits - 1
    return ((levels / 255 * most).round() / most * 255).round()


FORMS: dict[str, HeldValues] = {
    "": _spread,
    ", cut off": lambda levels, bits: ((levels.int() >> (8 - bits)) << (8 - bits)).float(),
    ", rounded": _rounded,
}
"""Ways to hold levels in fewer bits, by the words that follow their number."""


def relations(actual: Tensor, expected: Tensor) -> Iterator[Description]:
    """Yield the step of all values, and the bits of the levels.

    Args:
        actual: the subject's pixels ``[N, 3, H, W]``, from -1 to 1, float32.
        expected: those of the contract.
    """
    if (steps := _steps(actual, expected)) is not None:
        bits = f": held in {(steps + 1).bit_length()} bits, signed" if steps + 1 & steps == 0 else ""
        text = f"the pixels have {len(actual.unique())} values instead of {len(expected.unique())}, all multiples of "
        yield Description("step", f"{text}1/{steps}{bits}", 1.0, actual.numel())
    own, right = (((one + 1) * 127.5).round().clamp(0, 255) for one in (actual, expected))
    for words, held in FORMS.items():
        found = [_bits(own[:, k], right[:, k], held) for k in range(3)]
        known = [one for one in found if one is not None]
        if known == found and min(known) < 8:  # right levels have 8 bits as well
            yield Description("bits", said(known, words), 1.0, actual.numel())


def said(bits: list[int], form: str) -> str:
    """Say how many bits each colour's levels have."""
    if len({*bits}) == 1:
        return f"each colour has {2 ** bits[0]} levels: {count(bits[0], 'bit')}{form}"
    levels = ", ".join(str(2**one) for one in bits)
    return f"red, green and blue have {levels} levels: {', '.join(map(str, bits))} bits{form}"


def _steps(actual: Tensor, expected: Tensor) -> int | None:
    """Return the least number of steps from 0 to 1 to which rounding the right pixels gives the subject's."""
    values = actual[SOME].unique()
    if len(values) < LEAST_VALUES:
        return None

    def on(steps: int, exact: Tensor, of: Tensor) -> bool:
        rounded = (exact * steps).round() / steps
        return of.equal(rounded) or of.equal(rounded.bfloat16().float())

    found = next((one for one in range(2, MOST_STEPS + 1) if on(one, values, values)), None)
    right = ((expected + 1) * 127.5).round() / 127.5 - 1
    return found if found and on(found, right, actual) and not on(found, right, expected) else None


def _bits(actual: Tensor, expected: Tensor, held: HeldValues) -> int | None:
    """Return the number of bits in which one colour's levels are held, 8 if they are right; None if in none."""
    if actual.equal(expected):
        return 8
    some = [one for one in BITS if held(expected[SOME], one).equal(actual[SOME])]
    return next((one for one in some if held(expected, one).equal(actual)), None)
