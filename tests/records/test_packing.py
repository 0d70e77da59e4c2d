"""Observations taken apart and put together again, through the files that recordings are made of."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from pytest_dsocr.contract.markup import Box
from pytest_dsocr.records.packing import pack, unpack
from pytest_dsocr.records.reference_result import Artefact, Best, Output, ReferenceResult, Seam, SpanSeen, Step
from tests.compare.made import every_bit, observation
from tests.reference.replay import MADE

ODD = torch.tensor([[0.5, -0.0, math.nan, math.inf, -math.inf, 1e-40]])


def odd(*, keep_values: bool) -> ReferenceResult:
    """Return an observation of values that are easily lost on the way."""
    tensors = {
        "sam.crops": ODD,
        "sam.page/3": ODD.bfloat16(),
        "vision_fusion": ODD.half(),
        "prefill": ODD[0, 1:].clone(),
    }
    logits = (1.0009765625, -0.0, math.nan, -math.inf)
    spans = (SpanSeen("\u4e00 \x00", (Box(-9, 0.1, 1200, 2**40), Box(1, 2.0, 3, 4))), SpanSeen("", ()))
    return observation(
        keep_values=keep_values,
        seams={name: Seam.of(tensor, keep_values=keep_values) for name, tensor in tensors.items()},
        prefill_best=Best((129_279, 0, 1, 2), logits),
        steps=(Step(7, Best((7, 3, 1, 0), logits)), Step(3, Best((3, 7, 1, 0), logits[::-1]))),
        output=Output('"\\\r\n\u2028', spans, "", {"images/\u4e00.jpg": Artefact(0, (1, 10**7)), "x": Artefact(10**7)}),
        provenance=MADE,
    )


def through_files(made: ReferenceResult, folder: Path) -> ReferenceResult:
    packed, kept = pack(made)
    (folder / "packed.json").write_text(json.dumps(packed), encoding="utf-8")
    safetensors.torch.save_file(kept, folder / "packed.safetensors")
    read: dict[str, Any] = json.loads((folder / "packed.json").read_text(encoding="utf-8"))
    return unpack(read, safetensors.torch.load_file(folder / "packed.safetensors"), made.provenance)


BARE = observation(steps=(), seams={}, output=Output("", (), "", {}))


@pytest.mark.parametrize("made", [odd(keep_values=True), odd(keep_values=False), BARE], ids=["whole", "summed", "bare"])
def test_every_bit_comes_back_from_files(made: ReferenceResult, tmp_path: Path) -> None:
    assert every_bit(through_files(made, tmp_path)) == every_bit(made)
    torch.set_default_dtype(torch.bfloat16)  # as the vendor's loading does
    try:
        assert every_bit(unpack(*pack(made), made.provenance)) == every_bit(made)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("change", [{"tokens": [7, 3]}, {"seams": {"prefill": {}}}, {"inputs": {}}, {"output": {}}])
def test_wrong_parts_are_an_error(change: dict[str, Any]) -> None:
    packed, kept = pack(observation())
    with pytest.raises((KeyError, TypeError, ValueError)):
        unpack({**packed, **change}, kept, None)
    del kept["sketch/prefill"]
    with pytest.raises(KeyError, match="sketch/prefill"):
        unpack(packed, kept, None)
