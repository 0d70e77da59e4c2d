"""Blocks with a mistake inside: the module or the sum that differs is named, and how it differs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.step import INSIDE, LOCATED
from pytest_dsocr.explain.inside import of_inside
from pytest_dsocr.explain.mistake import Changes, blocks_of
from pytest_dsocr.layers.activations import quick_gelu
from pytest_dsocr.layers.sam import relative_table
from pytest_dsocr.models.deepseek_ocr import clip
from pytest_dsocr.records.inside import Inside, watch_inside
from pytest_dsocr.records.names import TensorName
from tests.describe.real import block, clean, engine, random

CLIP, SAM, FRONT = (TensorName.parse(one) for one in ("clip.page/0", "sam.page/0", "clip.page/0"))
SHARE = 0.99


class Port(nn.Module):
    """CLIP's block under other names, with queries, keys and values apart, and the views on the second axis."""

    def __init__(self, own: Any) -> None:
        super().__init__()
        self.before, self.between = own.layer_norm1, own.layer_norm2
        self.queries, self.keys, self.values = (self._part(own.self_attn.qkv_proj, k) for k in range(3))
        self.joins, self.widens, self.narrows = own.self_attn.out_proj, own.mlp.fc1, own.mlp.fc2
        self.heads = own.self_attn.heads

    def forward(self, x: Tensor) -> Tensor:
        """Compute the block."""
        x = x + self.attend(self.before(x))
        out: Tensor = x + self.narrows(quick_gelu(self.widens(self.between(x).transpose(0, 1)))).transpose(0, 1)
        return out

    def attend(self, x: Tensor) -> Tensor:
        """Attend over all positions."""
        q, k, v = (one(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.parts)
        out: Tensor = self.joins(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return out

    @property
    def parts(self) -> tuple[nn.Module, ...]:
        """The products that attention begins with."""
        return self.queries, self.keys, self.values

    @staticmethod
    def _part(own: nn.Linear, place: int) -> nn.Linear:
        part = nn.Linear(own.in_features, own.out_features // 3)
        part.weight.data, part.bias.data = (one.data.chunk(3)[place] for one in (own.weight, own.bias))
        return part


@pytest.fixture
def port() -> Port:
    return Port(blocks_of(engine(), "clip")[0])


def seen(module: nn.Module, x: Tensor) -> Inside:
    """Return the calls inside of a module."""
    with torch.no_grad(), watch_inside(module) as calls:
        module(x)
    return calls[-1]


def said(inside: Inside, name: TensorName = CLIP) -> Description:
    """Return the description, which there must be."""
    found = of_inside(clean(), name, inside)
    assert found is not None
    return found


def test_of_a_right_block_nothing_is_said(port: Port) -> None:
    assert of_inside(clean(), CLIP, seen(port, block("clip.page/0").given)) is None


def test_of_a_block_without_modules_nothing_is_said() -> None:
    assert of_inside(clean(), CLIP, seen(nn.Identity(), block("clip.page/0").given)) is None


def test_a_module_under_another_name_is_found_by_its_function(port: Port) -> None:
    port.widens, right = nn.Linear(port.widens.in_features, port.widens.out_features, bias=False), port.widens
    port.widens.weight = right.weight
    found = said(seen(port, block("clip.page/0").given))
    assert (found.kind, found.share > SHARE) == (INSIDE, True)
    assert "`widens`" in found.text
    assert "without the bias" in found.text
    assert "`narrows`" not in found.text


def test_queries_keys_and_values_that_are_apart_are_one_product(port: Port) -> None:
    right = port.keys
    port.keys = nn.Linear(right.in_features, right.out_features)
    port.keys.weight.data, port.keys.bias.data = right.weight.data.T.contiguous(), right.bias.data
    found = said(seen(port, block("clip.page/0").given))
    assert (found.kind, found.share > SHARE) == (INSIDE, True)
    assert "`queries + keys + values` is the product with the weight of the keys transposed" in found.text


def test_a_wrong_module_is_located_if_nothing_explains_it(port: Port) -> None:
    port.joins = nn.Linear(port.joins.in_features, port.joins.out_features)
    found = said(seen(port, block("clip.page/0").given))
    assert found.kind == LOCATED
    assert "the output of `joins`" in found.text


def test_a_sum_in_parts_of_fewer_bits_is_told(port: Port) -> None:
    right = port.narrows

    def in_parts(x: Tensor) -> Tensor:
        total: Tensor = torch.zeros(())
        for start in range(0, x.shape[-1], 32):
            inputs = slice(start, start + 32)
            total = (total + F.linear(x[..., inputs], right.weight[:, inputs])).bfloat16().float()
        out: Tensor = total + right.bias
        return out

    with Changes() as changes:
        changes.forward(right, in_parts)
        inside = seen(port, block("clip.page/0").given)
    found = said(inside)
    assert (found.kind, found.share > SHARE) == (INSIDE, True)
    assert "`narrows` is the product added up in parts of 32 inputs, and each sum rounded to bfloat16" in found.text


def parallel(own: Any, x: Tensor) -> Tensor:
    out: Tensor = x + own.self_attn(own.layer_norm1(x)) + own.mlp(own.layer_norm2(x))
    return out


def without_residual(own: Any, x: Tensor) -> Tensor:
    x = own.self_attn(own.layer_norm1(x))
    out: Tensor = x + own.mlp(own.layer_norm2(x))
    return out


def one_norm(own: Any, x: Tensor) -> Tensor:
    x = x + own.self_attn(own.layer_norm1(x))
    out: Tensor = x + own.mlp(own.layer_norm1(x))
    return out


def half_added(own: Any, x: Tensor) -> Tensor:
    x = x + own.self_attn(own.layer_norm1(x))
    out: Tensor = x + 0.5 * own.mlp(own.layer_norm2(x))
    return out


@pytest.mark.parametrize(
    ("flow", "names"),
    [
        (parallel, ("the input of `layer_norm2` is the block's input instead of",)),
        (without_residual, ("the input of `layer_norm2` is the output of `self_attn.out_proj` instead of",)),
        (one_norm, ("`layer_norm1, call 2`", "that of `layer_norm1` for this input")),
        (half_added, ("0.5 times the output of `mlp.fc2`",)),
    ],
)
def test_another_sum_is_read_from_the_values(flow: Callable[[Any, Tensor], Tensor], names: tuple[str, ...]) -> None:
    own = blocks_of(engine(), "clip")[0]
    with Changes() as changes:
        changes.forward(own, lambda x: flow(own, x))
        inside = seen(own, block("clip.page/0").given)
    found = said(inside)
    assert (found.kind, found.share > SHARE) == (INSIDE, True)
    assert all(one in found.text for one in names), found.text


def test_two_modules_with_one_fault_are_named_together() -> None:
    own = blocks_of(engine(), "clip")[0]
    with Changes() as changes:
        for norm in (own.layer_norm1, own.layer_norm2):
            changes.set(norm, "eps", 1e-3)
        inside = seen(own, block("clip.page/0").given)
    found = said(inside)
    assert found.share > SHARE
    assert "`layer_norm1`, the output of `layer_norm2` are" in found.text
    assert "0.001 instead of 1e-05" in found.text


def _bfloat16(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor) -> Tensor:
    scores = (q @ k.mT) / q.shape[-1] ** 0.5 + attn_mask
    out: Tensor = scores.bfloat16().softmax(-1).float() @ v
    return out


def _padded(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """Attend to keys that are padded to a multiple of 64, without a mask."""
    scores = (q @ k.mT) / q.shape[-1] ** 0.5 + (0 if attn_mask is None else attn_mask)
    out: Tensor = F.pad(scores, (0, -k.shape[2] % 64)).softmax(-1)[..., : k.shape[2]] @ v
    return out


def _rounded_scores(q: Tensor, height: int, width: int) -> Tensor:
    attention = blocks_of(engine(), "sam")[0].attn
    grid = q.reshape(-1, height, width, q.shape[-1])
    rows, columns = (relative_table(one, height) for one in (attention.rel_pos_h, attention.rel_pos_w))
    down = torch.einsum("bhwd,hkd->bhwk", grid, rows).half().float()[..., None]
    right = torch.einsum("bhwd,wkd->bhwk", grid, columns).half().float()[..., None, :]
    return (down + right).reshape(*q.shape[:3], -1)


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (lambda own, changes: changes.set(own.attn, "position_bias", _rounded_scores), "each rounded to float16"),
        (lambda own, changes: changes.weight(own.attn.rel_pos_h, 0 * own.attn.rel_pos_h), "rows are left out"),
        (lambda own, changes: changes.set(F, "scaled_dot_product_attention", _bfloat16), "softmax is computed in"),
    ],
)
def test_attention_that_differs_from_right_queries_is_described(
    plant: Callable[[Any, Changes], None], words: str
) -> None:
    own = blocks_of(engine(), "sam")[0]
    with Changes() as changes:
        plant(own, changes)
        inside = seen(own, block("sam.page/0").given[:, :20, :20])
    found = said(inside, SAM)
    assert (found.kind, found.share > SHARE) == (INSIDE, True)
    assert "the input of `attn.proj`" in found.text
    assert words in found.text


@pytest.mark.parametrize(("name", "count"), [(CLIP, 65), (SAM, 196)])
def test_keys_that_are_padded_without_a_mask_are_counted(name: TensorName, count: int) -> None:
    own, given = blocks_of(engine(), name.stage)[0], block(str(name)).given
    with Changes() as changes:
        changes.set(F, "scaled_dot_product_attention", _padded)
        inside = seen(own, given[:, :20, :20] if name is SAM else given)
    found = said(inside, name)
    assert (found.kind, found.share > SHARE) == (INSIDE, True)
    words = f"the softmax's sum has {-count % 64} more terms of score 0 and value 0 at {count} keys"
    assert f"{words}: as many as there are up to a multiple of 64" in found.text


def test_positions_resized_in_another_way_are_told_from_the_input_of_the_first_block() -> None:
    model, first = engine().model.get_submodule("model.vision_model"), blocks_of(engine(), "clip")[0]

    def nearest(table: Tensor, size: int) -> Tensor:
        planes = table.permute(2, 0, 1)[None]
        return F.interpolate(planes, size=(size, size), mode="nearest")[0].permute(1, 2, 0)

    with Changes() as changes, torch.no_grad(), watch_inside(model, first) as calls:
        changes.set(clip, "resize_grid", nearest)
        model(clean().features("sam", "page"))
    found = of_inside(clean(), FRONT, calls[0], is_front=True)
    assert found is not None
    assert (found.kind, found.share > SHARE) == (INSIDE, True)
    assert "the positions are resized nearest" in found.text


class Written(nn.Module):
    """Module that changes its input after its inner module has seen it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return twice the input, in its memory."""
        out: Tensor = self.inner(x).mul_(2)
        return out


def test_only_the_first_view_is_kept_as_it_was_when_it_was_seen() -> None:
    x = random(3, 4, 5)
    inside = seen(Written(), x.clone())
    assert inside.given.equal(x[:1])
    assert inside.gave.equal(2 * x[:1])
    assert [(one.path, one.given, one.gave) for one in inside.calls] == [("inner", 0, 0)]
