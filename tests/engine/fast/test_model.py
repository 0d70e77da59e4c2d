"""The fast engine against the readable one: its weights, experts, seams and hooks, along the same tokens."""

import gc
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytest_dsocr.contract.policy import CachePolicy
from pytest_dsocr.engine.engine import ENGINES, Engine
from pytest_dsocr.engine.fast import grouped, plain, slots
from pytest_dsocr.engine.fast.slots import StaticCache
from pytest_dsocr.engine.fast.weights import Norm, experts_of
from pytest_dsocr.engine.pipeline import DecodeState
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.layers.attention import eager, sdpa
from pytest_dsocr.layers.experts import MixtureOfExperts
from pytest_dsocr.layers.sizes import DecoderConfig
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.deepseek_ocr.fast import FastDeepseekOCR
from pytest_dsocr.timing.probe.flops import counted_flops
from suites.contract.pages import PAGES
from tests.engine.fast.layers import SMALL, make
from tests.engine.written import synthetic_engine

TOKENS, PROMPT_TOKENS = 12, 50


def assert_near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def fast() -> Engine[Any]:
    return Engine.from_checkpoint("synthetic:tiny", engine="fast")


@pytest.fixture(scope="module")
def own_sam() -> Engine[Any]:
    """With code of its own for SAM; with ``eager`` it captures the module."""
    return Engine.from_checkpoint("synthetic:tiny", attention="sdpa", engine="fast")


def prefilled(engine: Engine[Any], page: str = "portrait", *, all_logits: bool = False) -> DecodeState[Any]:
    return engine.prefill(engine.prepare(PAGES[page](), preset="tiny"), all_logits=all_logits)


@pytest.mark.parametrize("ring", [None, 8])
def test_prefill_and_steps_are_within_rounding(ring: int | None) -> None:
    family = replace(DEEPSEEK_OCR, cache=CachePolicy(ring))
    tiny, fast = synthetic_engine(family), synthetic_engine(family, FastDeepseekOCR)
    readable, actual = prefilled(tiny), prefilled(fast)
    assert_near(actual.logits, readable.logits)
    assert isinstance(actual.cache, StaticCache)
    for _ in range(TOKENS):
        token = int(readable.logits.argmax())
        expected = tiny.decode_step(readable, token)
        assert_near(fast.decode_step(actual, token), expected)
        assert actual.cache.lengths == readable.cache.lengths
    for layer in range(readable.cache.layers):
        assert_near(actual.cache.keys(layer), readable.cache.keys(layer))
        assert_near(actual.cache.values(layer), readable.cache.values(layer))


def test_half_precision_stays_near_the_readable_one() -> None:
    engines = [Engine.from_checkpoint("synthetic:tiny", dtype="bfloat16", engine=engine) for engine in ENGINES]
    states = [prefilled(engine) for engine in engines]
    for token in (5, 9, 300):
        expected, found = (one.decode_step(state, token) for one, state in zip(engines, states, strict=True))
        assert found.dtype == expected.dtype == torch.float32
        assert (found - expected).norm() / expected.norm() < 0.05


def test_the_cache_outgrows_its_room(fast: Engine[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    state = prefilled(fast)
    free = prefilled(fast)
    monkeypatch.setitem(slots.LEAST_ROOM, "cpu", 1)
    small = prefilled(fast)
    room = small.cache.ready().room
    for token in range(3, 3 + room - small.cache.length + 2):
        expected = fast.decode_step(state, token % 500)
        assert_near(fast.decode_step(small, token % 500), expected)
    assert small.cache.ready().room == 2 * room
    assert torch.equal(free.logits, prefilled(fast).logits)


def test_pages_do_not_disturb_each_other(fast: Engine[Any]) -> None:
    """Two states alternate, and a third one reuses memory with NaN of a finished page."""
    first, other = prefilled(fast), prefilled(fast, "landscape")
    logits = first.logits.clone()
    alone = fast.decode_step(prefilled(fast), 7)
    fast.decode_step(other, 9)
    assert torch.equal(first.logits, logits)
    assert torch.equal(fast.decode_step(first, 7), alone)
    slot = other.cache.ready()
    slot.values.fill_(torch.nan)
    slot.keys.fill_(torch.nan)
    del other
    gc.collect()
    again = prefilled(fast)
    assert again.cache.ready() is slot, "its memory is taken again"
    assert slot.values.isfinite().all(), "a weight of 0 would not hide a NaN"
    assert torch.equal(fast.decode_step(again, 7), alone)


def test_a_step_computes_no_more_than_the_readable_one(tiny: Engine[Any], fast: Engine[Any]) -> None:
    """The room that is not filled yet is neither multiplied by nor read."""
    steps = [(one, prefilled(one)) for one in (tiny, fast)]
    cache = steps[1][1].cache
    slot = cache.ready()
    slot.keys[:, :, :, cache.length + TOKENS :] = torch.nan
    slot.values[:, :, :, cache.length + TOKENS :] = torch.nan
    for token in range(3, 3 + TOKENS):
        flops = []
        for engine, state in steps:
            with counted_flops() as counted:
                assert engine.decode_step(state, token).isfinite().all()
            flops.append(counted.algorithmic)
        assert flops[0] == flops[1]


def test_weights_are_in_memory_once_and_under_the_vendors_names(tiny: Engine[Any], fast: Engine[Any]) -> None:
    expected, found = model_of(tiny).state_dict(), model_of(fast).state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    own = Engine.from_checkpoint("synthetic:tiny", engine="fast")
    state, changed = prefilled(own), prefilled(own)
    before = own.decode_step(state, 7)
    for name in ("model.layers.1.self_attn.v_proj", "model.layers.1.mlp.shared_experts.up_proj"):
        weight = model_of(own).get_submodule(name).get_parameter("weight")
        weight.mul_(2)
    assert not torch.allclose(own.decode_step(changed, 7), before), "steps compute with the parameters' memory"


def test_attention_reads_the_positions_that_are_filled_and_shares_key_heads() -> None:
    shared = replace(SMALL, hidden_size=48, num_attention_heads=6, num_key_value_heads=2)
    place = make(shared, length=200).slot.at(0)
    q = torch.randn(1, 6 * 8)
    keys, values = (stored[:, :, :200] for stored in (place.keys, place.values))
    expected = eager(q.view(1, 6, 1, 8), keys, values, None)
    torch.testing.assert_close(plain.attend(q, place, round_scores=False).view(1, 6, 1, 8), expected)


@pytest.mark.parametrize(("attention", "rounds"), [("eager", True), ("sdpa", False)])
def test_scores_are_rounded_where_eager_attention_rounds_them(attention: str, rounds: bool) -> None:
    engine = Engine.from_checkpoint("synthetic:tiny", attention=attention, engine="fast")
    model = engine.model
    assert isinstance(model, FastDeepseekOCR)
    assert model.weights is not None
    assert model.weights.round_scores is rounds
    assert {layer.self_attn.attend for layer in model.model.decoder_layers()} == {eager if rounds else sdpa}


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
    x, norm, feed = torch.randn(PROMPT_TOKENS, 16), Norm(torch.ones(16), 1e-6), experts_of(mixture)
    assert feed.router is not None
    inner, chosen, weights = how.gate_up(x, norm, plain.score(x, norm, feed.router, rounded=False), feed)
    found = how.down(inner, chosen, weights, feed, torch.zeros_like(x))
    torch.testing.assert_close(found, mixture(plain.normalise(x, norm)))


def test_with_eager_attention_vision_is_the_readable_one_to_the_bit(tiny: Engine[Any], fast: Engine[Any]) -> None:
    expected, found = (prefilled(engine, all_logits=True) for engine in (tiny, fast))
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
    tiny: Engine[Any], own_sam: Engine[Any], name: str
) -> None:
    """And what is computed is the same to the bit as where nothing is hooked: else reading is not what was watched."""
    [found], state = watched(own_sam, name)
    [expected], _ = watched(tiny, name)
    assert_near(found, expected)
    unwatched = prefilled(own_sam)
    assert torch.equal(state.logits, unwatched.logits)
    for seam, tensor in unwatched.visions[0].seams.items():
        assert torch.equal(state.visions[0].seams[seam], tensor), seam


@pytest.mark.parametrize("name", INSIDE)
def test_a_module_inside_is_called(tiny: Engine[Any], own_sam: Engine[Any], name: str) -> None:
    """And its stage is the readable one then, to the bit."""
    heard, state = watched(own_sam, name)
    assert heard
    seams, expected = state.visions[0].seams, prefilled(tiny).visions[0].seams
    assert torch.equal(seams["sam.page"], expected["sam.page"]) is INSIDE[name]


def test_hooks_of_a_block_may_change_what_goes_in_and_out(own_sam: Engine[Any]) -> None:
    block, usual = model_of(own_sam).get_submodule("model.layers.1"), prefilled(own_sam).logits
    with block.register_forward_pre_hook(lambda _module, given: (given[0] * 1.5,)):
        assert not torch.allclose(prefilled(own_sam).logits, usual)
    with block.register_forward_hook(lambda _module, given, _out: given[0]):
        assert not torch.allclose(prefilled(own_sam).logits, usual)
    assert torch.equal(prefilled(own_sam).logits, usual)


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
