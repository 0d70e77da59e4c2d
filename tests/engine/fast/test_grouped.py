"""Experts of many tokens at once, and a prompt through all layers, against the readable engine."""

from typing import Any

import pytest
import torch
from torch import nn

from pytest_dsocr.engine.engine import ENGINES, Engine
from pytest_dsocr.engine.fast import grouped, plain
from pytest_dsocr.engine.fast.weights import Norm, experts_of
from pytest_dsocr.engine.pipeline import DecodeState
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.layers.experts import MixtureOfExperts
from pytest_dsocr.layers.sizes import DecoderConfig
from pytest_dsocr.models.deepseek_ocr.fast import FastDeepseekOCR
from suites.contract.pages import PAGES

TOKENS = 50


@pytest.fixture(scope="module")
def fast() -> Engine[Any]:
    """With code of its own for SAM; with ``eager`` it captures the module."""
    return Engine.from_checkpoint("synthetic:tiny", attention="sdpa", engine="fast")


def prefilled(engine: Engine[Any]) -> DecodeState[Any]:
    return engine.prefill(engine.prepare(PAGES["landscape"](), preset="tiny"), all_logits=True)


@pytest.mark.parametrize("how", [plain, grouped])
@pytest.mark.parametrize(
    ("experts", "per_token", "more"),
    [(8, 3, {}), (60, 2, {"norm_topk_prob": True, "routed_scaling_factor": 1.5}), (1, 1, {})],
    ids=["few", "many, some unused, weights normalised and scaled", "one"],
)
def test_experts_are_those_of_the_readable_mixture(how: Any, experts: int, per_token: int, more: Any) -> None:
    torch.manual_seed(0)
    more = {**more, "n_routed_experts": experts, "num_experts_per_tok": per_token}
    config = DecoderConfig(hidden_size=16, moe_intermediate_size=12, **more)
    mixture = MixtureOfExperts(config).requires_grad_(False)
    for weight in mixture.parameters():
        weight.normal_(std=0.3)
    x, norm, feed = torch.randn(TOKENS, 16), Norm(torch.ones(16), 1e-6), experts_of(mixture)
    assert feed.router is not None
    inner, chosen, weights = how.gate_up(x, norm, plain.score(x, norm, feed.router, rounded=False), feed)
    found = how.down(inner, chosen, weights, feed, torch.zeros_like(x))
    torch.testing.assert_close(found, mixture(plain.normalise(x, norm)))


def test_with_eager_attention_vision_is_the_readable_one_to_the_bit(tiny: Engine[Any]) -> None:
    expected, found = prefilled(tiny), prefilled(Engine.from_checkpoint("synthetic:tiny", engine="fast"))
    for name, seam in expected.visions[0].seams.items():
        assert torch.equal(found.visions[0].seams[name], seam), name
    torch.testing.assert_close(found.all_logits, expected.all_logits, rtol=1e-5, atol=1e-6)


def test_half_precision_is_as_near_to_the_truth_as_the_readable_one() -> None:
    right = prefilled(Engine.from_checkpoint("synthetic:tiny"))
    errors = {}
    for engine in ENGINES:
        state = prefilled(Engine.from_checkpoint("synthetic:tiny", dtype="bfloat16", attention="sdpa", engine=engine))
        for name, seam in right.visions[0].seams.items():
            error = (state.visions[0].seams[name].float() - seam).norm() / seam.norm()
            errors[engine, name] = float(error)
    for (engine, name), error in errors.items():
        assert error < 1.5 * errors["readable", name], (engine, name)


BLOCKS = ("model.sam_model.blocks.0", "model.vision_model.transformer.layers.1", "model.layers.1")
INSIDE = {"model.sam_model.blocks.0.mlp": True, "model.layers.1.mlp.experts.0": False, "lm_head": False}
"""Whether SAM falls back to its readable form; otherwise the prefill does."""


def watched(engine: Engine[Any], name: str) -> tuple[list[torch.Tensor], DecodeState[Any]]:
    """Prefill with a hook on a module; return the hook's outputs and the state, and remove the hook."""
    heard: list[torch.Tensor] = []
    module: nn.Module = model_of(engine).get_submodule(name)
    with module.register_forward_hook(lambda _module, _given, out: heard.append(out)):
        state = prefilled(engine)
    count = len(heard)
    prefilled(engine)
    assert len(heard) == count, "not hooked any more"
    return heard, state


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_that_is_hooked_tells_what_the_fast_engine_computed(
    tiny: Engine[Any], fast: Engine[Any], name: str
) -> None:
    """And what is computed is the same to the bit as where nothing is hooked: else reading is not what was watched."""
    [found], state = watched(fast, name)
    [expected], _ = watched(tiny, name)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    unwatched = prefilled(fast)
    assert torch.equal(state.logits, unwatched.logits)
    for seam, tensor in unwatched.visions[0].seams.items():
        assert torch.equal(state.visions[0].seams[seam], tensor), seam


@pytest.mark.parametrize("name", INSIDE)
def test_a_module_inside_is_called(tiny: Engine[Any], fast: Engine[Any], name: str) -> None:
    """And its stage is the readable one then, to the bit."""
    heard, state = watched(fast, name)
    assert heard
    seams, expected = state.visions[0].seams, prefilled(tiny).visions[0].seams
    assert torch.equal(seams["sam.page"], expected["sam.page"]) is INSIDE[name]


def test_hooks_of_a_block_may_change_what_goes_in_and_out(fast: Engine[Any]) -> None:
    block, usual = model_of(fast).get_submodule("model.layers.1"), prefilled(fast).logits
    with block.register_forward_pre_hook(lambda _module, given: (given[0] * 1.5,)):
        assert not torch.allclose(prefilled(fast).logits, usual)
    with block.register_forward_hook(lambda _module, given, _out: given[0]):
        assert not torch.allclose(prefilled(fast).logits, usual)
    assert torch.equal(prefilled(fast).logits, usual)


def test_a_cast_after_loading_is_not_computed_with_old_tables() -> None:
    engine = Engine.from_checkpoint("synthetic:tiny", engine="fast")
    model = model_of(engine)
    prefilled(engine)
    assert isinstance(model, FastDeepseekOCR)
    model.double()
    assert (model.vision, model.weights) == (None, None)
    state = prefilled(engine)
    engine.decode_step(state, 7)
    assert state.visions[0].page["sam"].dtype == state.cache.keys(0).dtype == torch.float64
