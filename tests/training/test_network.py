"""The trainable model computes what the engine computes, faster: in parts, and from page to logits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ci.training.encoder import encode_levels, view_shapes
from ci.training.folded import FoldedAttention
from ci.training.generator import generate
from ci.training.network import forward, mix, new_model, number_waves, plane_waves
from ci.training.vocabulary import number_ids
from pytest_dsocr.contract.image import global_view
from pytest_dsocr.contract.inputs import normalise, prepare_inputs
from pytest_dsocr.contract.presets import Grid, Preset
from pytest_dsocr.engine.architecture import SamConfig
from pytest_dsocr.engine.attention import eager
from pytest_dsocr.engine.experts import MixtureOfExperts
from pytest_dsocr.engine.fusion import fuse, mosaic
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.sam import Attention
from pytest_dsocr.engine.tokenizer import Tokenizer
from tests.training.small import (
    BACKEND,
    QUICK,
    contract_batch,
    engine_logits,
    kind,
    levels,
    relative_error,
    small_architecture,
    small_model,
)

CPU = torch.device("cpu")
SMALL = Preset("small", 640, 640, crop=False)
TOKENIZER = Tokenizer.over(BACKEND)


def random_parameters(module: nn.Module, seed: int = 0) -> None:
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=random))


@pytest.mark.parametrize(("side", "height", "width"), [(7, 7, 7), (8, 8, 8), (8, 10, 10), (16, 5, 5)])
def test_folded_attention_is_the_engines(side: int, height: int, width: int) -> None:
    config = SamConfig(width=24, heads=2)
    plain, folded = Attention(config, side), FoldedAttention(config, side)
    random_parameters(plain)
    folded.load_state_dict(plain.state_dict())
    views = torch.randn((2, height, width, 24), generator=torch.Generator().manual_seed(1))
    outs = [attention(views.clone().requires_grad_()) for attention in (plain, folded)]
    assert relative_error(outs[1], outs[0]) < 1e-5
    for out in outs:
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    theirs = dict(folded.named_parameters())
    for name, parameter in plain.named_parameters():
        assert parameter.grad is not None
        mine = theirs[name].grad
        assert mine is not None
        apart = (mine - parameter.grad).abs().max()
        assert apart <= 1e-4 * parameter.grad.abs().max() + 1e-4, name
        assert name == "qkv.bias" or parameter.grad.abs().max() > 1e-3


def test_a_model_to_train_attends_by_folding_in_every_layer_of_sam() -> None:
    blocks = small_model().model.sam_model.blocks
    assert {type(block.attn) for block in blocks} == {FoldedAttention}
    assert [len(block.attn.rel_pos_h) for block in blocks if isinstance(block.attn, Attention)] == [27, 127]


@pytest.fixture(scope="module")
def experts() -> MixtureOfExperts:
    moe = MixtureOfExperts(small_architecture().decoder)
    random_parameters(moe)
    return moe


def test_mix_is_the_mixture_of_experts(experts: MixtureOfExperts) -> None:
    tokens = torch.randn((2, 30, 32), generator=torch.Generator().manual_seed(2))
    grads: list[dict[str, Tensor]] = []
    outs = []
    for run in (experts, lambda x: mix(experts, x)[0]):
        experts.zero_grad()
        out = run(tokens)
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
        outs.append(out)
        grads.append({name: p.grad.clone() for name, p in experts.named_parameters() if p.grad is not None})
    assert relative_error(outs[1], outs[0]) < 1e-5
    assert set(grads[0]) == set(grads[1]) == dict(experts.named_parameters()).keys()
    assert all(relative_error(grads[1][name], grads[0][name]) < 1e-4 for name in grads[0])


@pytest.mark.parametrize(("gate", "imbalance"), [("even", 1.0), ("one", 4.0)])
def test_imbalance_is_least_where_experts_are_used_alike(gate: str, imbalance: float) -> None:
    moe = MixtureOfExperts(replace(small_architecture().decoder, num_experts_per_tok=1))
    random_parameters(moe)
    with torch.no_grad():
        moe.gate.weight.zero_()
        if gate == "one":
            moe.gate.weight[2] = 10
    assert mix(moe, torch.ones(1, 40, 32))[1].item() == pytest.approx(imbalance, abs=1e-3)


def test_a_mosaic_of_many_pages_is_each_pages() -> None:
    tokens, grid = torch.randn(2, 6, 9, 4), (3, 2)
    for n in (0, 1):
        newline = torch.zeros(4)
        fused = fuse(tokens[n], torch.zeros(1, 4), grid, newline, newline)
        found = mosaic(tokens, grid)[n]
        assert found.shape == (6, 9, 4)
        assert torch.equal(found, fused[: 6 * 10].view(6, 10, 4)[:, :9])


@pytest.mark.parametrize(("preset", "grid"), [(QUICK, (2, 3)), (QUICK, (1, 1)), (SMALL, (1, 3))])
def test_training_sees_and_says_what_the_engine_does(preset: Preset, grid: Grid) -> None:
    model, batch = small_model(), contract_batch(range(5, 7), preset, grid)
    engine = DeepseekOCR.empty(model.arch, eager, CPU, torch.float32)
    engine.load_state_dict(model.state_dict())
    with torch.no_grad():
        seen = forward(model, encode_levels(model), batch)
        logits = model.lm_head(seen.hidden)
    for n, seed in enumerate((5, 6)):
        expected = engine_logits(engine, seed, preset, grid, batch.asked.ids[n])
        assert relative_error(logits[n], expected) < 1e-3
        assert float((logits[n].argmax(-1) == expected.argmax(-1)).float().mean()) > 0.99


def test_pixels_are_the_contracts() -> None:
    image = generate(5, grid=(1, 1)).image
    found = normalise(levels([np.array(global_view(image, SMALL))], 640)).float()
    assert torch.equal(found, prepare_inputs(image, "free", SMALL, TOKENIZER).images_ori.float())


def test_a_blind_rows_separator_is_zero() -> None:
    model, batch = small_model(), contract_batch(range(5, 7), SMALL, (1, 1))
    batch = batch._replace(asked=batch.asked._replace(blind=torch.tensor([False, True])))
    with torch.no_grad():
        vision = forward(model, encode_levels(model), batch).vision
    assert torch.equal(vision[0, -1], model.view_seperator)
    assert not vision[1, -1].any()
    assert vision[1, :-1].any(dim=-1).all()


def test_a_new_model_follows_from_its_seed() -> None:
    numbers = torch.tensor(number_ids(BACKEND))
    one, same, other = (new_model(small_architecture(), numbers, seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["model.projector.layers.weight"], other["model.projector.layers.weight"])
    assert all(weight.isfinite().all() for weight in one.values())


@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "lm_head.weight"])
def test_numbers_begin_near_their_neighbours(name: str) -> None:
    weight = new_model(small_architecture(), torch.tensor(number_ids(BACKEND)), 1).state_dict()[name]
    numbers = weight[number_ids(BACKEND)]
    gaps = [float((numbers[gap:] - numbers[:-gap]).norm(dim=1).mean()) for gap in (1, 30)]
    assert gaps[0] < 0.95 * gaps[1]


def test_waves_tell_every_number_and_every_place_apart() -> None:
    waves, plane = number_waves(32), plane_waves(8, 32).flatten(0, 1)
    for values in (waves, plane):
        distances = torch.cdist(values, values) + 9 * torch.eye(len(values))
        assert float(distances.min()) > 0.05
    assert (waves.shape, plane.shape) == ((1000, 32), (64, 32))


def test_every_batchs_views_have_a_shape_that_is_known_before() -> None:
    shapes = view_shapes(2)
    for preset, grid in (("gundam", (2, 3)), ("gundam", (1, 1)), ("tiny", (2, 2)), ("large", (1, 2))):
        of = kind(preset, grid)
        cut = of.crops[0] * of.crops[1]
        if cut > 1:
            assert (2 * cut, 3, 640, 640) in shapes
        assert (2, 3, of.preset.view_size, of.preset.view_size) in shapes
