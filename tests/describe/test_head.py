"""The last hidden state is solved from wrong logits, and the relation of its channels is found."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.describe.head import of_hidden
from pytest_dsocr.describe.rounding import FORMS
from pytest_dsocr.explain.computed import Seen
from pytest_dsocr.explain.described import describe_seen
from pytest_dsocr.explain.mistake import Changes, model_of
from pytest_dsocr.records.reference_result import Seam
from tests.describe.real import clean, engine, random

WIDTH, INT8 = 64, "int8 with a scale for each row"
HEAD, GAIN = random(300, WIDTH), 1 + 0.3 * random(WIDTH).abs()
STATE = random(WIDTH + 1)[1:]


def model() -> Any:
    """Return the engine's model."""
    return model_of(engine())


def by_half(state: Tensor) -> Tensor:
    """Return a state with each half of its channels normalised apart."""
    before = (state / GAIN).view(2, WIDTH // 2)
    return GAIN * (before / before.square().mean(1, keepdim=True).sqrt()).flatten()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (by_half, "another factor in each half of its 64 channels: "),
        (lambda x: x / GAIN, "is not multiplied by the weights of the last norm"),
        (lambda x: x + 0.25, "is 0.25 higher in each channel"),
        (lambda x: x.roll(8), "channels moved by 8, around the end"),
        (lambda x: x[[1, 0, *range(2, WIDTH)]], "in another order: 1, 0 and 2 to 63"),
    ],
)
def test_the_relation_of_hidden_states_is_found_from_logits(change: Callable[[Tensor], Tensor], words: str) -> None:
    found = of_hidden(HEAD @ change(STATE), HEAD @ STATE, HEAD, GAIN)
    assert found is not None
    assert (found.kind, found.explains) == ("hidden", True), found.text
    assert words in found.text


def test_nothing_is_said_of_logits_that_no_state_gives_or_that_nothing_simple_relates() -> None:
    right = HEAD @ STATE
    assert of_hidden(right + random(300), right, HEAD, GAIN) is None
    assert of_hidden(HEAD @ (STATE + 0.01 * random(2 * WIDTH)[WIDTH:]), right, HEAD, GAIN) is None
    flat = HEAD.clone()
    flat[:, 1] = flat[:, 0]
    assert of_hidden(2 * right, right, flat, GAIN) is None, "a head without full rank has no inverse"


@pytest.mark.parametrize(
    ("module", "change", "words"),
    [
        ("lm_head", lambda run, x: 20 * torch.tanh(run(x) / 20), "the logits are capped at 20"),
        ("lm_head", lambda run, x: F.linear(x, model().model.embed_tokens.weight), "the weights of the embeddings"),
        ("lm_head", lambda run, x: F.linear(x, FORMS[INT8](model().lm_head.weight)), INT8),
        ("model.norm", lambda run, x: run(x.roll(1, 1)), "those of position 76, not of the last one, 77"),
        ("model.norm", lambda run, x: x, "the output of the last norm is the unchanged input"),
    ],
)
def test_what_is_wrong_after_the_last_block_is_found_from_logits(
    module: str, change: Callable[[Any, Tensor], Tensor], words: str
) -> None:
    right = clean().run("prefill", "")
    with Changes() as changes:
        changes.around(model().get_submodule(module), change)
        wrong = clean().run("prefill", "")
    [found] = describe_seen(clean(), Seen("prefill", wrong, (clean().fused,)), Seam.of(right))
    assert (found.kind, found.explains) == ("head", True), found.text
    assert words in found.text


def test_a_norm_of_each_half_is_found_in_a_page_s_logits() -> None:
    right, norm = clean().run("prefill", ""), engine().model.model.norm

    def halved(run: Any, x: Tensor) -> Tensor:
        parts = [one * torch.rsqrt(one.square().mean(-1, keepdim=True) + norm.eps) for one in x.chunk(2, -1)]
        out: Tensor = norm.weight * torch.cat(parts, -1)
        return out

    with Changes() as changes:
        changes.around(norm, halved)
        wrong = clean().run("prefill", "")
    [found] = describe_seen(clean(), Seen("prefill", wrong, (clean().fused,)), Seam.of(right))
    assert (found.kind, found.explains) == ("hidden", True), found.text
    assert "another factor in each half of its 256 channels" in found.text
    assert [panel.title for panel in found.places] == ["logits"]
