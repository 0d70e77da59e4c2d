"""Observations taken apart and put together again, through the files that recordings are made of."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pytest_dsocr.contract.markup import Box
from pytest_dsocr.observation.observation import (
    Artefact,
    Best,
    InputsDigest,
    Observation,
    Output,
    Seam,
    SpanSeen,
    Step,
)
from pytest_dsocr.observation.packing import pack, pack_inputs, unpack, unpack_inputs, without_values
from tests.compare.made import every_bit, input_tensors, observation, random
from tests.reference.replay import MADE

PROVENANCE = MADE

sizes = st.integers(0, 10**7)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.sampled_from(["sam.crops", "sam.page", "sam.page/3", "vision_fusion", "prefill", "prefill/0"])
float32s = st.floats(width=32)
boxes = st.builds(Box, *[st.integers(-9, 1200) | st.floats(0, 999)] * 4)
artefacts = st.builds(Artefact, sizes, st.none() | st.tuples(sizes, sizes))
outputs = st.builds(
    Output,
    text=words,
    spans=st.lists(st.builds(SpanSeen, words, st.lists(boxes, max_size=3).map(tuple)), max_size=3).map(tuple),
    mmd=words,
    artefacts=st.dictionaries(words, artefacts, max_size=3),
)


def bests(count: int) -> st.SearchStrategy[Best]:
    ids = st.lists(st.integers(0, 129_279), min_size=count, max_size=count).map(tuple)
    return st.builds(Best, ids, st.lists(float32s, min_size=count, max_size=count).map(tuple))


steps = st.integers(1, 5).flatmap(
    lambda count: st.lists(st.builds(Step, st.integers(0, 129_279), bests(count)), max_size=4).map(tuple)
)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    tensor = random(*shape, seed=draw(st.integers(0, 99))).to(dtype)
    tensor.view(-1)[0] = draw(st.sampled_from([0.5, -0.0, math.nan, math.inf, -math.inf, 1e-40]))
    return tensor


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    kept = draw(st.booleans())
    seams = draw(st.dictionaries(names, tensors(), max_size=4))
    return observation(
        keep_values=kept,
        case_id=draw(words),
        seams={name: Seam.of(tensor, keep_values=kept) for name, tensor in seams.items()},
        prefill_best=draw(bests(4)),
        steps=draw(steps),
        output=draw(outputs),
        provenance=PROVENANCE,
    )


def through_files(made: Observation, folder: Path) -> Observation:
    packed, kept = pack(made)
    (folder / "packed.json").write_text(json.dumps(packed), encoding="utf-8")
    safetensors.torch.save_file(kept, folder / "packed.safetensors")
    read: dict[str, Any] = json.loads((folder / "packed.json").read_text(encoding="utf-8"))
    return unpack(read, safetensors.torch.load_file(folder / "packed.safetensors"), made.provenance)


@settings(max_examples=80, database=None, deadline=None)
@given(observations())
def test_every_bit_comes_back(made: Observation) -> None:
    assert every_bit(unpack(*pack(made), PROVENANCE)) == every_bit(made)


def test_every_bit_comes_back_from_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("packed")

    @settings(max_examples=60, database=None, deadline=None)
    @given(observations())
    def comes_back(made: Observation) -> None:
        assert every_bit(through_files(made, folder)) == every_bit(made)

    comes_back()


def test_the_bits_compared_here_tell_apart_what_python_calls_equal() -> None:
    pairs: list[tuple[object, object]] = [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ((1,), [1]),
        (torch.ones(1), torch.ones(1).half()),
    ]
    assert all(every_bit(a) != every_bit(b) for a, b in pairs)
    assert every_bit(math.nan) == every_bit(math.nan)


def test_a_recording_keeps_summaries_alone(tmp_path: Path) -> None:
    whole = observation(keep_values=True)
    stripped = without_values(whole)
    assert every_bit(stripped) == every_bit(observation())
    assert whole.logits is not None
    assert whole.inputs.values is not None
    assert all(seam.values is not None for seam in whole.seams.values())
    kept = pack(stripped)[1]
    assert {name.split("/")[0] for name in kept} == {"sample", "sketch", "best_ids", "best_logits"}
    assert every_bit(through_files(stripped, tmp_path)) == every_bit(stripped)


@pytest.mark.parametrize("keep_values", [True, False])
def test_inputs_come_back(keep_values: bool) -> None:
    digest = InputsDigest.of(input_tensors(), keep_values=keep_values)
    packed, kept = pack_inputs(digest)
    assert every_bit(unpack_inputs(json.loads(json.dumps(packed)), kept)) == every_bit(digest)
    assert set(kept) == ({f"inputs/{name}" for name in input_tensors()} if keep_values else set())


def test_logits_are_packed_in_float32_whatever_torchs_default_is() -> None:
    """The vendor's loading sets it."""
    made = observation(prefill_best=Best((1,), (1.0009765625,)))
    torch.set_default_dtype(torch.bfloat16)
    try:
        again = unpack(*pack(made), None)
    finally:
        torch.set_default_dtype(torch.float32)
    assert every_bit(again) == every_bit(made)


def test_an_observation_of_no_steps_and_seams_comes_back(tmp_path: Path) -> None:
    bare = observation(steps=(), seams={}, output=Output("", (), "", {}))
    assert every_bit(through_files(bare, tmp_path)) == every_bit(bare)


@pytest.mark.parametrize(
    "lost", ["sample/prefill", "sketch/prefill", "best_ids/steps", "best_logits/steps", "best_ids/prefill"]
)
def test_a_lost_tensor_is_an_error(lost: str) -> None:
    packed, kept = pack(observation())
    del kept[lost]
    with pytest.raises(KeyError, match=lost):
        unpack(packed, kept, None)


@pytest.mark.parametrize(
    "change",
    [{"tokens": [7, 3]}, {"tokens": [7, 3, 1, 1]}, {"seams": {"prefill": {}}}, {"inputs": {}}, {"output": {}}],
    ids=str,
)
def test_wrong_parts_are_an_error(change: dict[str, Any]) -> None:
    packed, kept = pack(observation())
    with pytest.raises((KeyError, TypeError, ValueError)):
        unpack({**packed, **change}, kept, None)


def test_packing_leaves_the_observation_as_it_was() -> None:
    made = observation(keep_values=True)
    before = every_bit(made)
    packed, kept = pack(made)
    packed["case_id"] = "other"
    kept.clear()
    assert every_bit(replace(made)) == before
