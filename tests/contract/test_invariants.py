"""Each way in which inputs can be off is told apart, and the message says by how much."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from pytest_dsocr.contract.inputs import Inputs, check_inputs, prepare_inputs
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError
from suites.contract.pages import rgb
from tests.contract.recorded_inputs import RecordedTokenizer

IMAGE_ID = DEFAULT.special.image
GUNDAM, BASE = DEFAULT.presets["gundam"], DEFAULT.presets["base"]
TEXT = "\nFree OCR."
TOKENIZER = RecordedTokenizer({"": [], TEXT: [201, 21431, 126041, 16], " ": [223], "Hello.": [5, 6]})


def prepared(preset: Preset, *sizes: tuple[int, int]) -> Inputs:
    prompt = " ".join(["<image>"] * len(sizes)) + TEXT if sizes else "Hello."
    return prepare_inputs([rgb(*size) for size in sizes], prompt, preset, TOKENIZER)


@pytest.mark.parametrize("preset", DEFAULT.presets.values(), ids=list(DEFAULT.presets))
@pytest.mark.parametrize("sizes", [(), ((1000, 1000),), ((300, 200),), ((700, 500), (30, 20), (500, 900))])
def test_prepared_inputs_pass(preset: Preset, sizes: tuple[tuple[int, int], ...]) -> None:
    check_inputs(prepared(preset, *sizes), preset, DEFAULT.special)


# The prompt is BOS, the image ids (693 for 2 x 2 crops, 273 for none) and 4 ids of text.
CUT = prepared(GUNDAM, (1000, 1000))
TALL = prepared(GUNDAM, (850, 1300))
UNCUT = prepared(GUNDAM, (300, 200))
TWO = prepared(GUNDAM, (1000, 1000), (300, 200))
PLAIN = prepared(BASE, (1000, 1000))


class Fault(NamedTuple):
    name: str
    of: Inputs
    change: dict[str, Tensor]
    message: str


def with_one(row: Tensor, index: int, value: int) -> Tensor:
    """A ``[1, S]`` tensor with another value at one position."""
    changed = row.clone()
    changed[0, index] = value
    return changed


IDS, MASK, GRIDS = CUT.input_ids, CUT.images_seq_mask, CUT.images_spatial_crop
CROPS, PAGE = CUT.images_crop, CUT.images_ori
ONE_MORE_IMAGE_ID = {
    "input_ids": with_one(PLAIN.input_ids, -1, IMAGE_ID),
    "images_seq_mask": with_one(PLAIN.images_seq_mask, -1, 1),
}
FAULTS = [
    Fault("mask without BOS", CUT, {"images_seq_mask": MASK[:, 1:]}, "[1, 697] torch.bool where it is [1, 698]"),
    Fault("mask one early", CUT, {"images_seq_mask": MASK.roll(-1, 1)}, "disagree at 2 positions, the first of them 0"),
    Fault("mask as numbers", CUT, {"images_seq_mask": MASK.long()}, "torch.int64 where it is [1, 698] torch.bool"),
    Fault("ids one late", CUT, {"input_ids": IDS.roll(1, 1)}, "BOS (id 0) stands at positions [1]"),
    Fault(
        "no BOS", CUT, {"input_ids": IDS[:, 1:], "images_seq_mask": MASK[:, 1:]}, "BOS (id 0) stands at positions []"
    ),
    Fault("two BOS", CUT, {"input_ids": with_one(IDS, -1, 0)}, "BOS (id 0) stands at positions [0, 697]"),
    Fault(
        "other image id", CUT, {"input_ids": IDS.where(~MASK, 128816)}, "disagree at 693 positions, the first of them 1"
    ),
    Fault("ids without a batch", CUT, {"input_ids": IDS[0]}, "input_ids is [698] torch.int64 where it is [1, 698]"),
    Fault("a batch of two", CUT, {"input_ids": IDS.expand(2, -1)}, "input_ids is [2, 698]"),
    Fault("ids as int32", CUT, {"input_ids": IDS.int()}, "input_ids is [1, 698] torch.int32"),
    Fault(
        "columns and rows swapped",
        TALL,
        {"images_spatial_crop": TALL.images_spatial_crop.flip(1)},
        "has 903 image tokens, gundam asks for 893",
    ),
    Fault(
        "another grid of as many crops",
        CUT,
        {"images_spatial_crop": torch.tensor([[4, 1]])},
        "has 693 image tokens, gundam asks for 683 and vision will give 683 features",
    ),
    Fault(
        "more crops than allowed",
        CUT,
        {"images_spatial_crop": torch.tensor([[4, 3]])},
        "has (4, 3) where gundam has 2 to 9 crops",
    ),
    Fault(
        "a grid where nothing is cropped",
        PLAIN,
        {"images_spatial_crop": GRIDS},
        "has (2, 2) where base has (1, 1)",
    ),
    Fault(
        "no image beside an image",
        TWO,
        {"images_spatial_crop": torch.tensor([[2, 2], [0, 0]])},
        "has (0, 0) where gundam has",
    ),
    Fault(
        "a grid too few",
        TWO,
        {"images_spatial_crop": GRIDS},
        "images_ori is [2, 3, 1024, 1024] torch.bfloat16 where it is [1, 3",
    ),
    Fault("flat grids", CUT, {"images_spatial_crop": GRIDS[0]}, "images_spatial_crop is [2] torch.int64 where it is"),
    Fault("grids as int32", CUT, {"images_spatial_crop": GRIDS.int()}, "torch.int32 where it is [1, 2] torch.int64"),
    Fault("grids moved", CUT, {"images_spatial_crop": GRIDS.to("meta")}, "images_spatial_crop is on meta"),
    Fault(
        "a crop too few",
        CUT,
        {"images_crop": CROPS[1:]},
        "images_crop is [3, 3, 640, 640] torch.bfloat16 where it is [4",
    ),
    Fault("a thumbnail added", CUT, {"images_crop": torch.cat([CROPS, CROPS[:1]])}, "images_crop is [5, 3, 640, 640]"),
    Fault("crops of 512 px", CUT, {"images_crop": CROPS[..., :512, :512]}, "images_crop is [4, 3, 512, 512]"),
    Fault(
        "crops where there are none",
        UNCUT,
        {"images_crop": CROPS},
        "images_crop is [4, 3, 640, 640] torch.bfloat16 where it is [1, 3, 1024, 1024] torch.float32",
    ),
    Fault("no crops as an empty tensor", UNCUT, {"images_crop": CROPS[:0]}, "images_crop is [0, 3, 640, 640]"),
    Fault(
        "a page of another size",
        CUT,
        {"images_ori": PAGE[..., :640, :640]},
        "images_ori is [1, 3, 640, 640] torch.bfloat16 where it is [1, 3, 1024, 1024]",
    ),
    Fault(
        "a page in float32", CUT, {"images_ori": PAGE.float()}, "images_ori is [1, 3, 1024, 1024] torch.float32 where"
    ),
    Fault(
        "an image id too many",
        PLAIN,
        ONE_MORE_IMAGE_ID,
        "has 274 image tokens, base asks for 273 and vision will give 273 features",
    ),
    Fault(
        "an image without its ids",
        UNCUT,
        {"input_ids": torch.tensor([[0, 5]]), "images_seq_mask": torch.tensor([[False, False]])},
        "has 0 image tokens, gundam asks for 273",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_named(fault: Fault) -> None:
    preset = BASE if fault.of is PLAIN else GUNDAM
    check_inputs(fault.of, preset, DEFAULT.special)
    with pytest.raises(DsocrError, match=re.escape(fault.message)):
        check_inputs(replace(fault.of, **fault.change), preset, DEFAULT.special)


def test_inputs_of_one_preset_are_not_those_of_another() -> None:
    with pytest.raises(DsocrError, match="images_ori is"):
        check_inputs(PLAIN, DEFAULT.presets["large"], DEFAULT.special)
