"""The mixture of experts, greedy decoding, and a ring: what a step sees of it is the vendor's.

``tests/cache/test_ring.py`` holds a cache to its ring, ``tests/parity`` every token and logit of a page after one.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.pipeline import generate, pick
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.layers.experts import MixtureOfExperts
from pytest_dsocr.layers.sizes import DecoderConfig
from pytest_dsocr.models import MODELS
from suites.contract.asked import own_preset
from suites.contract.pages import PAGES
from tests.engine.written import synthetic_engine


def test_the_first_of_equal_logits_is_best() -> None:
    assert pick(torch.tensor([[1.0, 3.0, 3.0], [2.0, 0.0, 2.0]]), [[], []]) == [1, 0]


def test_a_banned_token_is_passed_over_in_its_row_alone_and_the_logits_stay() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0], [1.0, 3.0, 2.0]])
    before = logits.clone()
    assert pick(logits, [[1], []]) == [2, 1]
    assert pick(logits, [[], [1, 2]]) == [1, 0]
    assert torch.equal(logits, before)


def test_an_ended_row_gives_pad_while_the_others_go_on(tiny: Engine[Any]) -> None:
    inputs = [tiny.prepare(PAGES[name](), preset="tiny") for name in ("portrait", "landscape")]
    state = tiny.pipeline.join([tiny.prefill(row) for row in inputs])
    pad, prompts = tiny.tokenizer.special.pad, [row.input_ids[0].tolist() for row in inputs]
    second = tiny.run_prepared(inputs[0], max_new_tokens=2).token_ids[1]
    policy = replace(tiny.policy, max_new_tokens=4, eos_id=second)
    rows = [*zip(*generate(tiny.pipeline, state, prompts, policy, pad), strict=True)]
    assert rows[0][1:] == (second, pad, pad)
    assert not {second, pad} & {*rows[1]}


def test_the_last_prompt_token_may_be_decoded_again() -> None:
    ringed = synthetic_engine(MODELS["unlimited_ocr"].with_ring(8))
    state = ringed.prefill(ringed.prepare(PAGES["tiny"](), preset=own_preset("view", 256, 256, False)))
    before, keys = state.logits.clone(), state.cache.keys(1).clone()
    torch.testing.assert_close(ringed.pipeline.redecode_last(state), before, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state.cache.keys(1), keys, rtol=1e-4, atol=1e-5)
    with pytest.raises(DsocrError, match="9 tokens at once do not fit the end of a ring of 8; feed each alone"):
        model_of(ringed).decode(model_of(ringed).embed(torch.arange(9)[None]), state.cache)


CONFIG = DecoderConfig(hidden_size=16, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=12)


@pytest.fixture
def experts() -> MixtureOfExperts:
    torch.manual_seed(0)
    module = MixtureOfExperts(CONFIG).requires_grad_(False)
    for weight in module.parameters():
        weight.normal_(std=0.3)
    return module


def test_few_tokens_are_gathered_and_many_are_looped(
    experts: MixtureOfExperts, monkeypatch: pytest.MonkeyPatch
) -> None:
    experts.stack()
    gathered: list[int] = []
    original = experts.run_gathered

    def watched(tokens: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        gathered.append(len(tokens))
        return original(tokens, chosen)

    monkeypatch.setattr(experts, "run_gathered", watched)
    experts(torch.randn(1, 2, 16))
    experts(torch.randn(1, 3, 16))
    assert gathered == [2], "3 tokens of 3 experts each are more than the 8 experts"


def test_stacked_weights_are_the_experts_own(experts: MixtureOfExperts) -> None:
    before = {name: weight.clone() for name, weight in experts.state_dict().items()}
    x = torch.randn(1, 1, 16)
    looped = experts(x)
    experts.stack()
    after = experts.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    old = experts(x)
    torch.testing.assert_close(old, looped, msg="gathered, they give what looped ones do")
    for expert in experts.experts:
        expert.load_state_dict({name: 2 * weight for name, weight in expert.state_dict().items()})
    assert not torch.allclose(experts(x), old), "loading into an expert reaches the stacked weights"


def test_a_cast_after_stacking_is_not_computed_with_old_weights(experts: MixtureOfExperts) -> None:
    experts.stack()
    wide = experts.double()
    x = torch.randn(1, 1, 16, dtype=torch.float64)
    assert wide(x).dtype == torch.float64
