"""Changes of a mistake are undone, whatever they changed."""

import re
from contextlib import suppress
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.catalogue import groups, mistakes
from pytest_dsocr.explain.mistake import Changes, model_of
from pytest_dsocr.explain.planted import plant
from pytest_dsocr.layers import activations
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.deepseek_ocr import clip


def test_attributes_weights_and_forwards_are_put_back() -> None:
    linear, norm, before = nn.Linear(2, 2), nn.BatchNorm1d(2), activations.quick_gelu
    weight, given = linear.weight.data.clone(), linear(torch.ones(2))
    with Changes() as changes:
        changes.set(activations, "quick_gelu", torch.relu)
        changes.set(linear, "in_features", 7)
        changes.set(norm, "running_mean", torch.ones(2))
        changes.weight(linear.weight, 2 * linear.weight.data)
        changes.around(linear, lambda run, x: run(x) + 1)
        changes.around(linear, lambda run, x: run(x) + 1)
        assert activations.quick_gelu is torch.relu
        assert torch.equal(linear(torch.ones(2)), nn.functional.linear(torch.ones(2), 2 * weight, linear.bias) + 1 + 1)
    assert activations.quick_gelu is before
    assert linear.in_features == 2
    assert torch.equal(dict(norm.named_buffers())["running_mean"], torch.zeros(2))
    assert torch.equal(linear.weight, weight)
    assert torch.equal(linear(torch.ones(2)), given)
    assert "forward" not in vars(linear)


def test_an_attribute_that_is_not_there_cannot_be_changed() -> None:
    with Changes() as changes, pytest.raises(AttributeError, match="does not have the attribute 'quick_gelus'"):
        changes.set(clip, "quick_gelus", torch.relu)
    assert not hasattr(clip, "quick_gelus")


def test_ids_and_words_are_of_one_mistake_each() -> None:
    every = [one for group in groups(DEEPSEEK_OCR).values() for one in group]
    assert len({re.sub(r"\W", "_", one.id) for one in every}) == len(every)
    assert len(mistakes(DEEPSEEK_OCR)) > 500
    for group in groups(DEEPSEEK_OCR).values():
        assert len({one.words for one in group}) == len(group), group.stage


@pytest.mark.dsocr_slow
def test_an_engine_is_as_before_once_mistakes_are_taken_out(tiny: Engine[Any]) -> None:
    state = {name: value.clone() for name, value in model_of(tiny).state_dict().items()}
    given = _everything(tiny)
    for name, group in groups(DEEPSEEK_OCR).items():
        for one in group:
            with Changes() as changes, suppress(NotImplementedError):
                plant(one, tiny, changes)
                if one is group[0] and name in ("prefill", "steps"):
                    _everything(tiny)  # these are planted anew for each prompt
        after = model_of(tiny).state_dict()
        assert all(torch.equal(after[key], value) for key, value in state.items()), name
    assert all(torch.equal(a, b) for a, b in zip(given, _everything(tiny), strict=True))


def _everything(tiny: Engine[Any]) -> list[Tensor]:
    inputs = tiny.prepare(Image.new("RGB", (700, 300), "red"), preset="gundam")
    state = tiny.prefill(inputs)
    return [*inputs.tensors.values(), *state.visions[0].seams.values(), state.logits, tiny.decode_step(state, 3)]
