"""The mixture of experts: both ways of running it, against one token at a time."""

from __future__ import annotations

import pytest
import torch

from pytest_dsocr.engine.architecture import DecoderConfig
from pytest_dsocr.engine.experts import MixtureOfExperts

CONFIG = DecoderConfig(hidden_size=16, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=12)


@pytest.fixture
def experts() -> MixtureOfExperts:
    torch.manual_seed(0)
    module = MixtureOfExperts(CONFIG).requires_grad_(False)
    for weight in module.parameters():
        weight.normal_(std=0.3)
    return module


def one_by_one(module: MixtureOfExperts, x: torch.Tensor) -> torch.Tensor:
    rows = []
    for token in x:
        scores = (module.gate.weight @ token).softmax(dim=0)
        weights, chosen = scores.topk(CONFIG.num_experts_per_tok)
        routed = sum(w * module.experts[int(e)](token) for w, e in zip(weights, chosen, strict=True))
        rows.append(routed + module.shared_experts(token))
    return torch.stack(rows)


@pytest.mark.parametrize("tokens", [1, 2, 50])
@pytest.mark.parametrize("stacked", [False, True])
def test_equals_each_token_alone(experts: MixtureOfExperts, tokens: int, stacked: bool) -> None:
    if stacked:
        experts.stack()
    x = torch.randn(tokens, 16)
    torch.testing.assert_close(experts(x[None])[0], one_by_one(experts, x))


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
    experts.stack()
    after = experts.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    x = torch.randn(1, 1, 16)
    old = experts(x)
    for expert in experts.experts:
        expert.load_state_dict({name: 2 * weight for name, weight in expert.state_dict().items()})
    assert not torch.allclose(experts(x), old), "loading into an expert reaches the stacked weights"


def test_a_cast_after_stacking_is_not_computed_with_old_weights(experts: MixtureOfExperts) -> None:
    experts.stack()
    wide = experts.double()
    x = torch.randn(1, 1, 16, dtype=torch.float64)
    assert wide(x).dtype == torch.float64
