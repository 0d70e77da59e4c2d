"""The mixture of experts: which way it is run, and that stacked weights are the experts' own."""

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
