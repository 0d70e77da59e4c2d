"""Other functions that a norm, a linear layer or a convolution may compute instead of its own.

They are parameters of simple formulas, not known mistakes.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.describe.attention import ACTIVATIONS
from pytest_dsocr.describe.rounding import FORMATS as FORMATS
from pytest_dsocr.describe.rounding import FORMS
from pytest_dsocr.layers.norms import LayerNorm2d, RmsNorm

Function = Callable[[Tensor], Tensor]
EPSILONS = (0.0, 1e-3, 1e-5, 1e-6, 1e-7, 1e-8, 1e-12)
PARTS = ("queries", "keys", "values")
AXES = {(2, 3): "places", 2: "rows", 3: "columns", (1, 2, 3): "channels and places"}
"""Axes of a map ``[B, C, H, W]`` that a norm may take, in words."""
PARTS_OF_SUMS = (8, 16, 32, 64, 128)
"""Numbers of inputs that kernels multiply before they round a sum."""
TF32_BITS = 13
"""Bits of a float32 that TF32 drops."""


def functions_of(module: nn.Module) -> Iterator[tuple[str, Function]]:
    """Yield other functions than a module's own, with words that follow "it is"; the simplest come first."""
    yield "the unchanged input", torch.clone
    yield "zero", torch.zeros_like if isinstance(module, nn.LayerNorm | RmsNorm) else lambda x: 0 * module(x)
    if isinstance(module, nn.LayerNorm | RmsNorm | LayerNorm2d):
        yield from _norms(module)
    elif isinstance(module, nn.Linear | nn.Conv2d):
        yield from _products(module)
    own: Function = module
    for name, activation in ACTIVATIONS.items():
        yield f"{name} of the right output", partial(_after, own, activation)
        yield f"that for {name} of the input", partial(_after, activation, own)
    for name, dtype in FORMATS.items():
        yield f"the right output, rounded to {name}", partial(_after, own, partial(rounded, dtype=dtype))
        yield f"computed from the input rounded to {name}", partial(_after, partial(rounded, dtype=dtype), own)


def _after(first: Function, second: Function, x: Tensor) -> Tensor:
    return second(first(x))


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Round values to a dtype and keep their own."""
    return x.to(dtype).to(x.dtype)


def tf32(x: Tensor) -> Tensor:
    """Round float32 values to TF32."""
    bits = x.float().contiguous().view(torch.int32)
    half = 1 << (TF32_BITS - 1)
    return ((bits + half) & ~((1 << TF32_BITS) - 1)).view(torch.float32)


def normed(
    module: Any,
    x: Tensor,
    *,
    eps: float | None = None,
    gain: float | None = None,
    shift: bool = True,
    is_rms: bool | None = None,
    correction: int = 0,
    outside: bool = False,
    dtype: torch.dtype = torch.float32,
    added: float = 0.0,
    over: int | tuple[int, ...] | None = None,
) -> Tensor:
    """Normalise the last axis, or the channels of a norm of maps, with changes.

    Args:
        module: the norm, with its weights and its own rule.
        x: its input.
        eps: another epsilon.
        gain: a factor instead of the weights.
        shift: whether the biases are added.
        is_rms: whether the mean stays.
        correction: number that is subtracted from the count of the variance.
        outside: whether the epsilon is added to the root.
        dtype: dtype of the computation.
        added: number that is added to the weights.
        over: other axes.
    """
    own = 1 if isinstance(module, LayerNorm2d) else -1
    dim = own if over is None else over
    shape = (-1, 1, 1) if own == 1 else (-1,)
    bias, wide = getattr(module, "bias", None), x.to(dtype)
    eps = module.eps if eps is None else eps
    keeps_mean = isinstance(module, RmsNorm) if is_rms is None else is_rms
    centred = wide if keeps_mean else wide - wide.mean(dim, keepdim=True)
    variance = wide.pow(2).mean(dim, keepdim=True) if keeps_mean else wide.var(dim, keepdim=True, correction=correction)
    scaled = centred / (variance.sqrt() + eps if outside else (variance + eps).sqrt())
    out: Tensor = scaled.to(x.dtype) * ((module.weight + added).view(shape) if gain is None else gain)
    return out + bias.view(shape) if bias is not None and shift else out


def _norms(module: Any) -> Iterator[tuple[str, Function]]:
    of = partial(partial, normed, module)
    yield "normed without weights", of(gain=1.0)
    if getattr(module, "bias", None) is not None:
        yield "normed without biases", of(shift=False)
        yield "normed without weights and biases", of(gain=1.0, shift=False)
    is_rms = isinstance(module, RmsNorm)
    other = "normed by mean and variance" if is_rms else "normed by the root of the mean square: the mean stays"
    yield other, of(is_rms=not is_rms)
    yield "normed with one plus the weights", of(added=1.0)
    for eps in EPSILONS:
        yield f"normed with an epsilon of {eps:g} instead of {module.eps:g}", of(eps=eps)
    yield "normed with the epsilon added to the root", of(outside=True)
    yield "normed by the variance over one channel less", of(correction=1)
    yield "normed twice", lambda x: module(module(x))
    if isinstance(module, LayerNorm2d):
        for over, words in AXES.items():
            yield f"normed over {words} instead of channels", of(over=over)
    yield (
        "the right one but for the first row, which stays as it is",
        lambda x: torch.cat([x[:, :1], module(x[:, 1:])], 1),
    )
    for name, dtype in FORMATS.items():
        yield f"normed in {name}", of(dtype=dtype)


def _products(module: Any) -> Iterator[tuple[str, Function]]:
    weight, bias = module.weight, module.bias

    def of(weight: Tensor, bias: Tensor | None = bias) -> Function:
        return partial(_product, module, weight=weight, bias=bias)

    if bias is not None:
        yield "the product without the bias", of(weight, None)
        yield "the product with the bias added twice", of(weight, 2 * bias)
    if weight.ndim == 2 and weight.shape[0] == weight.shape[1]:
        yield "the product with the transposed weight", of(weight.T)
    if weight.ndim == 2 and weight.shape[0] == 3 * weight.shape[1]:
        for place, part in enumerate(PARTS):
            parts = [*weight.chunk(3)]
            parts[place] = parts[place].T
            yield f"the product with the weight of the {part} transposed", of(torch.cat(parts))
            if bias is not None:
                biases = [*bias.chunk(3)]
                biases[place] = torch.zeros_like(biases[place])
                yield f"the product without the bias of the {part}", of(weight, torch.cat(biases))
    if weight.ndim == 4 and weight.shape[2] == weight.shape[3]:
        yield "the product with rows and columns of the weight exchanged", of(weight.mT)
        yield "the product with the weight turned by 180 degrees", of(weight.flip(2, 3))
        yield "the product with the weight's input channels backwards", of(weight.flip(1))
        last = weight.reshape(len(weight), *weight.shape[2:], weight.shape[1]).permute(0, 3, 1, 2)
        yield "the product with the weight read with its channels last", of(last)
    if isinstance(module, nn.Conv2d) and module.padding != (0, 0):
        yield from _paddings(module)
    words = "the product of input and weight rounded to TF32, which has the digits of float16"
    yield words, lambda x: of(tf32(weight).to(weight.dtype))(tf32(x))
    for name, dtype in FORMATS.items():
        yield f"the product of input and weight rounded to {name}", _narrow(of, weight, dtype)
        yield f"computed in {name}", _narrow(of, weight, dtype, is_whole=True)
    if weight.ndim == 2:
        for name, dtype in FORMATS.items():
            for size in PARTS_OF_SUMS:
                words = f"the product added up in parts of {size} inputs, and each sum rounded to {name}"
                yield words, partial(_in_parts, weight, bias, size, dtype)
        for words, form in FORMS.items():
            yield f"the product with the weight rounded to {words}", of(form(weight).to(weight.dtype))


def _in_parts(weight: Tensor, bias: Tensor | None, part: int, dtype: torch.dtype, x: Tensor) -> Tensor:
    total = torch.zeros((), dtype=x.dtype, device=x.device)
    for start in range(0, x.shape[-1], part):
        inputs, columns = (one[..., start : start + part] for one in (x, weight))
        total = rounded(total + F.linear(inputs, columns), dtype)
    return total if bias is None else total + bias


def _paddings(module: nn.Conv2d) -> Iterator[tuple[str, Function]]:
    rows, columns = (2 * int(one) for one in module.padding)
    for mode in ("replicate", "reflect", "circular"):
        sides = (columns // 2, columns // 2, rows // 2, rows // 2)
        yield f"the product with the input padded by {mode}", partial(_padded, module, sides, mode)
    for words, sides in (
        ("at its end alone", (0, columns // 2, 0, rows // 2)),
        ("at its start alone", (columns // 2, 0, rows // 2, 0)),
        ("at its end, as much as on both sides", (0, columns, 0, rows)),
    ):
        yield f"the product with the input padded {words}", partial(_padded, module, sides, "constant")


def _padded(module: nn.Conv2d, sides: tuple[int, int, int, int], mode: str, x: Tensor) -> Tensor:
    return F.conv2d(F.pad(x, sides, mode=mode), module.weight, module.bias, module.stride)


def _product(module: Any, x: Tensor, *, weight: Tensor, bias: Tensor | None) -> Tensor:
    if isinstance(module, nn.Conv2d):
        return F.conv2d(x, weight, bias, module.stride, module.padding)
    return F.linear(x, weight, bias)


def _narrow(of: Any, weight: Tensor, dtype: torch.dtype, *, is_whole: bool = False) -> Function:
    def run(x: Tensor) -> Tensor:
        out: Tensor = of(rounded(weight, dtype))(rounded(x, dtype))
        return rounded(out, dtype) if is_whole else out

    return run
