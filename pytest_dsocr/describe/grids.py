"""Grids of few levels that ports and files keep weights on: what the groups are, and how the levels of one are placed.

Shapes: G values of a group, on the last axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.describe.rounding import TINY, Form

BITS = (2, 3, 4, 5, 6, 8)
GROUPS: tuple[int | None, ...] = (None, 16, 32, 64, 128, 256)
"""Sizes of groups of a row; None for a row."""
BLOCK = 128
"""Side of the squares of a weight that DeepSeek's own 8-bit checkpoints scale."""
E2M1 = (-6.0, -4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Numbers of a float with 4 bits (OCP Microscaling Formats)."""
E4M3_LARGEST = 448.0
NF4 = (
    *(-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0),
    *(0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.7230, 1.0),
)
"""Quantiles of normal numbers, one for each of 16 codes (QLoRA, 2023)."""
Near = Callable[[Tensor, Form], Tensor]
"""Return the nearest code of each value in steps, with a function that rounds."""
Base = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Return where each group's zero is, and its step, ``[..., 1]``."""
KEPT = (
    (torch.float32, torch.float32),
    *((one, of) for of in (torch.float16, torch.bfloat16) for one in (torch.float32, of)),
)
"""Dtypes of the steps that codes are made by, and of those that are kept with them."""


def _up(steps: Tensor) -> Tensor:
    return (steps + 0.5).floor()


def _away(steps: Tensor) -> Tensor:
    return steps.sign() * _up(steps.abs())


ROUNDING: tuple[Form, ...] = (torch.round, _up, _away)
"""Functions that round to whole numbers; weights of 16 bits are often halfway between two."""


@dataclass(frozen=True)
class WeightGrid:
    """Levels of a weight's groups."""

    words: str
    """Name that follows "the weight rounded to"."""
    base: Base
    near: Near
    group: int | None

    def on(
        self,
        weight: Tensor,
        codes: torch.dtype = torch.float32,
        kept: torch.dtype = torch.float32,
        whole: Form = torch.round,
    ) -> Tensor:
        """Put a weight on the grid, float32.

        Args:
            weight: any ``[..., I]`` whose rows the groups divide.
            codes: dtype of the steps that codes are made by.
            kept: dtype of the steps that codes are multiplied by.
            whole: rounds to whole numbers.
        """
        wide = weight.float()
        values = wide if self.group is None else wide.unflatten(-1, (-1, self.group))
        exact = self.base(values)
        low, step = (one.to(codes).float() for one in exact)
        code = self.near((values - low) / torch.where(step == 0, 1, step), whole)
        low, step = (one.to(kept).float() for one in exact)
        return (code * step + low).view_as(wide)

    def forms(self) -> Iterator[Form]:
        """Yield the grid with steps as files keep them, and by the rules for halves."""
        for (codes, kept), whole in product(KEPT, ROUNDING):
            yield partial(self.on, codes=codes, kept=kept, whole=whole)


def _largest(values: Tensor) -> Tensor:
    return values.abs().amax(-1, keepdim=True)


def _of_largest(values: Tensor, *, most: float) -> tuple[Tensor, Tensor]:
    """Let the group's largest magnitude be a number of steps from zero."""
    step = _largest(values) / most
    return torch.zeros_like(step), step


def _of_peak(values: Tensor, *, most: float) -> tuple[Tensor, Tensor]:
    """Let the group's value of largest magnitude be a number of steps below zero, whatever its sign."""
    step = values.gather(-1, values.abs().argmax(-1, keepdim=True)) / -most
    return torch.zeros_like(step), step


def _of_range(values: Tensor, *, most: float) -> tuple[Tensor, Tensor]:
    """Let the levels start at the group's smallest value and end at its largest one."""
    low = values.amin(-1, keepdim=True)
    return low, (values.amax(-1, keepdim=True) - low) / most


def _of_powers(values: Tensor, *, largest: float) -> tuple[Tensor, Tensor]:
    """Use steps that are powers of two, as in the OCP's formats."""
    exponents = _largest(values).clamp_min(TINY).log2().floor() - torch.tensor(largest).log2().floor()
    return torch.zeros_like(exponents), torch.exp2(exponents)


def _whole(steps: Tensor, whole: Form, *, least: int, most: int) -> Tensor:
    return whole(steps).clamp(least, most)


def _of_codes(steps: Tensor, _: Form, *, codes: tuple[float, ...]) -> Tensor:
    known = torch.tensor(codes, device=steps.device)
    return known[torch.bucketize(steps, (known[1:] + known[:-1]) / 2)]


def _e4m3(steps: Tensor, _: Form = torch.round) -> Tensor:
    return steps.clamp(-E4M3_LARGEST, E4M3_LARGEST).to(torch.float8_e4m3fn).float()


def _even(bits: int) -> Iterator[tuple[str, Base, Near]]:
    """Yield grids of even steps, in words."""
    half, count = 2 ** (bits - 1), 2**bits
    signed, odd = partial(_whole, least=-half, most=half - 1), partial(_whole, least=1 - half, most=half - 1)
    yield f"{count - 1} levels around zero", partial(_of_largest, most=half - 1), odd
    yield f"{count} levels, one end at the value of largest magnitude", partial(_of_peak, most=half), signed
    yield f"{count} levels, the lowest at minus the largest magnitude", partial(_of_largest, most=half), signed
    beyond = f"{count} levels, the ends half a step beyond the largest magnitude"
    yield beyond, partial(_of_largest, most=half - 0.5), signed
    yield (
        f"{count} levels from the smallest to the largest value",
        partial(_of_range, most=count - 1),
        partial(_whole, least=0, most=count - 1),
    )


UNEVEN: Mapping[str, tuple[Base, Near]] = {
    "the 16 numbers of NF4": (partial(_of_largest, most=1), partial(_of_codes, codes=NF4)),
    "float4 (e2m1)": (partial(_of_largest, most=E2M1[-1]), partial(_of_codes, codes=E2M1)),
    "float4 (e2m1) times a power of two": (partial(_of_powers, largest=E2M1[-1]), partial(_of_codes, codes=E2M1)),
    "float8 (e4m3)": (partial(_of_largest, most=E4M3_LARGEST), _e4m3),
    "float8 (e4m3) times a power of two": (partial(_of_powers, largest=E4M3_LARGEST), _e4m3),
}
FILES = {
    "16 levels, one end at the value of largest magnitude, in each 32 values": "Q4_0",
    "32 levels, one end at the value of largest magnitude, in each 32 values": "Q5_0",
    "16 levels from the smallest to the largest value, in each 32 values": "Q4_1",
    "32 levels from the smallest to the largest value, in each 32 values": "Q5_1",
    "255 levels around zero, in each 32 values": "Q8_0",
    "float4 (e2m1) times a power of two, in each 32 values": "MXFP4",
}
"""Names of formats of files."""


def grids_of(columns: int) -> Iterator[WeightGrid]:
    """Yield the grids of a weight with this number of columns, which the groups divide."""
    for group in GROUPS:
        if group is None or not columns % group:
            where = "in each row" if group is None else f"in each {group} values"
            even = (one for bits in BITS for one in _even(bits))
            uneven = ((words, *of) for words, of in UNEVEN.items())
            for words, base, near in (*even, *uneven):
                text = f"{words}, {where}"
                name = FILES.get(text)
                yield WeightGrid(f"{text} ({name})" if name else text, base, near, group)


def in_squares(weight: Tensor) -> Tensor:
    """Round to float8 with a scale for each square of a weight, as DeepSeek's own checkpoints are, float32."""
    rows, columns = weight.shape
    wide = F.pad(weight.float(), (0, -columns % BLOCK, 0, -rows % BLOCK))
    squares = wide.unflatten(1, (-1, BLOCK)).unflatten(0, (-1, BLOCK)).transpose(1, 2).flatten(2)
    scale = _largest(squares).clamp_min(TINY) / E4M3_LARGEST
    made: Tensor = (_e4m3(squares / scale) * scale).unflatten(2, (BLOCK, BLOCK)).transpose(1, 2).flatten(2, 3)
    return made.flatten(0, 1)[:rows, :columns]
