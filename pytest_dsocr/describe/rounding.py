"""Weights and inputs on a coarser grid: the forms in which a port may hold them without a word."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

TINY = 1e-12
Form = Callable[[Tensor], Tensor]


def _of_ints(weight: Tensor, bits: int, group: int | None = None, *, is_whole: bool = False) -> Tensor:
    """Round to whole multiples of a scale: of the whole tensor, of each row, or of each group of a row."""
    wide = weight.float()
    if group is not None and wide.shape[-1] % group:
        return wide
    parts = wide.flatten() if is_whole else wide if group is None else wide.unflatten(-1, (-1, group))
    most = 2 ** (bits - 1) - 1
    scale = parts.abs().amax(-1, keepdim=True).clamp_min(TINY) / most
    rounded: Tensor = (parts / scale).round().clamp(-most, most) * scale
    return rounded.view_as(wide)


def _with_zero(values: Tensor, bits: int, group: int | None = None, *, is_whole: bool = False) -> Tensor:
    """Round to levels from the smallest to the largest value, of which one is zero."""
    wide = values.float()
    if group is not None and wide.shape[-1] % group:
        return wide
    parts = wide.flatten() if is_whole else wide if group is None else wide.unflatten(-1, (-1, group))
    low, high = parts.amin(-1, keepdim=True).clamp(max=0), parts.amax(-1, keepdim=True).clamp(min=0)
    most = 2**bits - 1
    step = (high - low).clamp_min(TINY) / most
    zero = (-low / step).round()
    rounded: Tensor = (((parts / step).round() + zero).clamp(0, most) - zero) * step
    return rounded.view_as(wide)


def _of_floats(weight: Tensor, dtype: torch.dtype, *, is_scaled: bool = False, by_row: bool = False) -> Tensor:
    wide = weight.float()
    largest = wide.abs().amax(-1, keepdim=True) if by_row else wide.abs().max()
    scale = largest.clamp_min(TINY) / torch.finfo(dtype).max if is_scaled else torch.ones(())
    return (wide / scale).to(dtype).float() * scale


def truncated(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Cut values to a dtype of 16 bits: the nearest ones towards zero, as dropped bits give them."""
    wide = values.float()
    near = wide.to(dtype)
    inner = (near.view(torch.int16) - 1).view(dtype)  # sign and magnitude: one less is the next one towards zero
    return near.where(near.float().abs() <= wide.abs(), inner).float()


FORMATS: Mapping[str, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16}
BY_TRUNCATION = "{} by truncation, not rounding"
FORMS: Mapping[str, Form] = {
    **{name: partial(_of_floats, dtype=dtype) for name, dtype in FORMATS.items()},
    **{BY_TRUNCATION.format(name): partial(truncated, dtype=dtype) for name, dtype in FORMATS.items()},
    "int8 with one scale for the tensor": partial(_of_ints, bits=8, is_whole=True),
    "int8 with a scale for each row": partial(_of_ints, bits=8),
    **{f"int8 with a scale for each {n} values": partial(_of_ints, bits=8, group=n) for n in (32, 64, 128)},
    "int4 with a scale for each row": partial(_of_ints, bits=4),
    **{f"int4 with a scale for each {n} values": partial(_of_ints, bits=4, group=n) for n in (32, 64, 128)},
    "float8 (e4m3)": partial(_of_floats, dtype=torch.float8_e4m3fn),
    "float8 (e4m3) with one scale for the tensor": partial(_of_floats, dtype=torch.float8_e4m3fn, is_scaled=True),
    "float8 (e4m3) with a scale for each row": partial(
        _of_floats, dtype=torch.float8_e4m3fn, is_scaled=True, by_row=True
    ),
    "float8 (e5m2)": partial(_of_floats, dtype=torch.float8_e5m2),
}
"""Functions that round a weight, by the words of its form."""
WITH_ZERO: Mapping[str, Form] = {
    f"uint{bits} with a scale and a zero for {words}": partial(_with_zero, bits=bits, **of)  # type: ignore[arg-type]
    for bits in (8, 4)
    for words, of in (
        ("the tensor", {"is_whole": True}),
        ("each row", {}),
        *((f"each {n} values", {"group": n}) for n in (32, 64, 128)),
    )
}
"""Forms whose levels go from the smallest to the largest value."""
OF_INPUTS: Mapping[str, Form] = {
    **{name: form for name, form in FORMS.items() if name.startswith(("int8", "float8", *FORMATS))},
    **{name: form for name, form in WITH_ZERO.items() if name.startswith("uint8")},
}
"""Forms that inputs of products are rounded to."""
