"""What one operator costs, in operations and in numbers; the towers and the decoder are made of these.

Conventions: a multiplication with its addition is two operations, an exponential or a root is one. A product takes in
the zeros of paddings, and causal attention all pairs of a query and a key: so does ``torch.utils.flop_counter``, and so
do kernels that skip nothing. Left out, being less than a ten-thousandth of a page: resized position tables, the
angles of rotary positions, comparisons.

Bytes are those that have to be moved: a module that multiplies reads what it is given and writes what it gives, once.
Norms, biases, activations and residuals ride along; what stays inside a module, such as scores, is not moved at all.
"""

from __future__ import annotations

from pytest_dsocr.cost.cost import Cost

LAYER_NORM = 7
"""A number: summed, centred, squared, summed, scaled, times the weight, plus the bias."""
RMS_NORM = 4
"""A number: squared, summed, scaled, times the weight."""
SOFTMAX = 5
"""A score: highest found, subtracted, exponential, summed, divided."""
ROTARY = 3
"""A number: times the cosine, its partner times the sine, both added."""
GELU = 5
QUICK_GELU = 3
SILU = 2

ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


def product(rows: int, inputs: int, outputs: int, *, bias: bool = False) -> Cost:
    """Multiply ``[rows, inputs]`` by ``[inputs, outputs]``."""
    return Cost(matrix_flops=2 * rows * inputs * outputs, other_flops=rows * outputs * bias)


def attention(queries: int, keys: int, channels: int) -> Cost:
    """Multiply ``queries`` with ``keys`` each, and the weights with the values, in heads of ``channels`` together."""
    flops = 4 * queries * keys * channels
    return Cost(matrix_flops=flops, attention_flops=flops)


def scores(count: int, operations: int = 0) -> Cost:
    """Scale scores and turn them to weights; ``operations`` more on each."""
    return each(count, 1 + SOFTMAX + operations)


def each(count: int, operations: int = 1) -> Cost:
    """Do something to every number."""
    return Cost(other_flops=count * operations)


def moved(size: int, *, weights: int = 0, read: int = 0, written: int = 0) -> Cost:
    """Move so many numbers of ``size`` bytes."""
    return Cost(weight_bytes=size * weights, read_bytes=size * read, written_bytes=size * written)
