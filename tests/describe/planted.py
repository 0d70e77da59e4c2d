"""Mistakes planted in blocks of the embedded model."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pytest_dsocr.describe.description import Description
from pytest_dsocr.explain.computed import Seen
from pytest_dsocr.explain.described import describe_seen
from pytest_dsocr.explain.mistake import Changes, blocks_of, model_of
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.reference_result import Seam
from tests.describe.real import block, clean, engine

Planted = Callable[[Any, Changes], None]


def attends(change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Planted:
    """Return a mistake that attends by a function of queries, keys and values."""

    def plant(layer: Any, changes: Changes) -> None:
        changes.set(layer.self_attn, "attend", lambda q, k, v, lengths: change(q, k, v))

    return plant


def weights(path: str, change: Callable[[Tensor], Tensor]) -> Planted:
    """Return a mistake of a weight."""

    def plant(layer: Any, changes: Changes) -> None:
        parameter = layer.get_parameter(path)
        changes.weight(parameter, change(parameter.data.clone()))

    return plant


def described(what: str, plant: Planted) -> Description:
    """Describe the output of a block with a mistake, from its right input."""
    right, given = block(what)
    stage, _, depth = TensorName.parse(what)
    assert depth is not None
    layer = blocks_of(engine(), stage)[depth]
    with Changes() as changes, torch.no_grad():
        plant(layer, changes)
        if stage == "prefill":
            cache = model_of(engine()).new_cache()
            positions = cache.positions(given.shape[1], given.device)
            gave = layer(given, Rope(model_of(engine()).model.inv_freq, positions, given.dtype), cache)
        else:
            gave = layer(given)
    [found] = describe_seen(clean(), Seen(what, gave, (given,)), Seam.of(right))
    return found


class Found(NamedTuple):
    """Mistake in a block, and what its description says."""

    what: str
    plant: Planted
    kind: str
    words: str

    def check(self) -> None:
        """Check that the description explains the block's output, in these words."""
        found = described(self.what, self.plant)
        assert (found.kind, found.explains) == (self.kind, True), found.text
        assert self.words in found.text
