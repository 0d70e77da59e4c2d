"""How many positions the cache holds: the prompt's to begin with, and one more for each step, in every layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from pytest_dsocr.compare.verdict import Comparison, as_expected
from pytest_dsocr.observation.config import Config
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.subjects.kv_probe import KvProbe
from pytest_dsocr.subjects.protocol import DecodeView

from .walk import Walk

pytestmark = pytest.mark.dsocr_level("L2")

Probe = Callable[[DecodeView], KvProbe]


def test_as_many_layers_as_the_checkpoint_has(
    walk: Walk, dsocr_config: Config, dsocr_kv: Probe, dsocr_check: Check
) -> None:
    from pytest_dsocr.engine.checkpoint import resolve

    expected = resolve(dsocr_config.checkpoint).architecture.decoder.num_hidden_layers
    layers = len(dsocr_kv(walk.start()[0]).lengths)
    dsocr_check([as_expected("cache/layers", layers, expected, "the checkpoint's layers")])


def test_it_starts_at_the_prompts_length(walk: Walk, dsocr_kv: Probe, dsocr_check: Check) -> None:
    dsocr_check(_lengths(dsocr_kv(walk.start()[0]), walk.prompt_tokens, "after prefill", "the prompt's tokens"))


def test_it_grows_by_one_in_every_layer_a_step(walk: Walk, dsocr_kv: Probe, dsocr_check: Check) -> None:
    state, _ = walk.start()
    found: list[Comparison] = []
    for step, token in enumerate(walk.tokens, 1):
        walk.steps(state, [token])
        found += _lengths(dsocr_kv(state), walk.prompt_tokens + step, f"after step {step}", f"the prompt's and {step}")
    dsocr_check(found)


def _lengths(probe: KvProbe, expected: int, when: str, why: str) -> list[Comparison]:
    """Compare what the cache says of itself, and the length of each layer's keys and values."""
    lengths = Counter(length for pair in probe.lengths for length in pair)
    held = next(iter(lengths)) if len(lengths) == 1 else f"{dict(lengths)}, by tensors that are so long"
    return [
        as_expected(f"cache/length {when}", probe.state.cache.length, expected, why),
        as_expected(f"cache/positions {when}", held, expected, f"{why}, in keys and values of every layer"),
    ]
