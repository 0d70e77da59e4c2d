"""Relations between the ids, masks and grids of prompts."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies

from pytest_dsocr.contract.presets import Grid, crop_grid, image_token_count
from pytest_dsocr.describe.ids import Vocabulary, _within, of_counts, of_grids, of_ids, of_mask, of_rule
from pytest_dsocr.describe.simplest import simplest
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR

TILING = DEEPSEEK_OCR.tiling
TOKENIZER = resolve(MINI).tokenizer
VOCABULARY = Vocabulary(TOKENIZER, 2017)
IMAGE, BOS = TOKENIZER.special.image, TOKENIZER.special.bos
TEXT = TOKENIZER.encode("\nConvert this page, and that page, to text. " * 40)
IDS = [BOS, *[IMAGE] * 693, *TEXT]
NEWLINE = TOKENIZER.encode("\n")
AT = 1_024


def _with(at: int, *new: int) -> list[int]:
    return [*IDS[:at], *new, *IDS[at:]]


def _replaced(old: int, *new: int) -> list[int]:
    return [one for token in IDS for one in (new if token == old else [token])]


IDS_SAID: dict[str, tuple[Sequence[int], str, str]] = {
    "second BOS": (_with(AT, BOS), "inserted", f"one token {BOS} (BOS) inserted at 1,024"),
    "no BOS": (IDS[1:], "left-out", f"one token {BOS} (BOS) left out at 0"),
    "at the end": (_with(len(IDS), BOS), "inserted", f"one token {BOS} (BOS) inserted at {len(IDS):,} (the end)"),
    "one image token": (_with(5, IMAGE), "inserted", f"one token {IMAGE} (<image>) inserted among 693"),
    "moved": ([BOS, *TEXT, *[IMAGE] * 693], "moved", "693 tokens"),
    "reversed": (IDS[::-1], "reversed", "opposite order"),
    "offset": ([one + 1 for one in IDS], "offset", f"{len(IDS):,} of {len(IDS):,} ids are +1"),
    "pads": (_replaced(IMAGE, 2), "replaced", f"693 times 2 (padding) in place of 693 times {IMAGE} (<image>) at 1"),
    "bfloat16": (
        torch.tensor(IDS).bfloat16().long().tolist(),
        "id-function",
        f"rounded as bfloat16 rounds it: {IMAGE} is 2008",
    ),
    "int8": ([(one + 128) % 256 - 128 for one in IDS], "id-function", "wrapped as int8 wraps it"),
    "limit": ([min(one, 1_000) for one in IDS], "id-function", "every id above 1,000 is 1,000"),
    "added": ([one + 2 * (one > 1_300) for one in IDS], "id-function", " on is +2: "),
    "cut": (
        IDS[:500],
        "cut",
        f"the ids end after 500 of {len(IDS):,}; missing: {len(IDS) - 500:,} tokens 194 times {IMAGE} (<image>), ",
    ),
    "alien": (_replaced(TEXT[1], 34_030), "replaced", "token 34030 in place of"),
    "two for one": (_replaced(NEWLINE[0], 92, 110), "replaced", "2 tokens"),
    "other ids": (
        [one * 37 + 3_000 for one in IDS],
        "other-vocabulary",
        "outside the checkpoint's vocabulary of 2,017",
    ),
    "noise": ([IDS[0], *random.Random(1).choices(range(1900), k=900)], "anatomy", "the first of 1,814 ids is right"),
}


@pytest.mark.parametrize(("actual", "kind", "words"), IDS_SAID.values(), ids=IDS_SAID)
def test_ids_are_described_by_the_simplest_relation(actual: Sequence[int], kind: str, words: str) -> None:
    found = simplest(of_ids(actual, IDS, VOCABULARY))
    assert found is not None
    assert (found.kind, found.explains) == (kind, kind != "anatomy"), found
    assert words in found.text


def test_ids_beyond_the_vocabulary_are_counted_with_their_places() -> None:
    found = simplest(of_ids(_replaced(TEXT[1], 34_030), IDS, VOCABULARY))
    assert found is not None
    assert f" at {IDS.count(TEXT[1])} places from " in found.text
    assert found.text.endswith("; outside the checkpoint's vocabulary of 2,017")


@pytest.mark.parametrize(
    ("actual", "words"),
    [
        (272, "without the crops'"),
        (420, "without the page's"),
        (692, "without the separator"),
        (1113, "2 x 4"),
        (7, ""),
    ],
)
def test_counts_are_grid_arithmetic(actual: int, words: str) -> None:
    page = 273 if actual == 272 else actual
    found = simplest(of_counts(page, DEEPSEEK_OCR.presets["gundam"], (2, 2)))
    assert found is not None
    assert words in found.text
    assert found.explains is bool(words)


def test_a_count_is_of_no_grid_that_the_subject_does_not_use() -> None:
    counted = [simplest(of_counts(number, PRESET, (2, 2), (2, 2))) for number in (713, 483)]
    assert [one and one.text.partition(": ")[2] for one in counted] == ["with newlines for each crop by itself", ""]


PRESET = DEEPSEEK_OCR.presets["gundam"]
LIGHT = [one for one in TILING.grids if image_token_count(PRESET, one) <= 1024]
SIZES = (
    (600, 600),
    (900, 900),
    (1000, 1000),
    (1500, 1500),
    (641, 641),
    (1200, 960),
    (3500, 1000),
    (600, 2000),
    (30, 20),
)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (lambda *size: crop_grid(*_within(size, 1024), TILING), "pages shrunk to at most 1,024 px a side"),
        (lambda a, b: crop_grid(a, b, replace(TILING, crop_px=512)), "those of crops of 512 px instead of 640"),
        (
            lambda a, b: crop_grid(a, b, TILING, LIGHT),
            "at most 693 image tokens; none is chosen that has 1,203 or more",
        ),
        (lambda a, b: crop_grid(a, b, replace(TILING, crop_px=448 if a > 640 else 640)), "crops had 448 px"),
    ],
)
def test_the_number_in_a_rule_for_grids_is_found(rule: Callable[[int, int], Grid], words: str) -> None:
    found = next(of_rule({size: rule(*size) for size in SIZES}, PRESET))
    assert words in found.text
    assert next(of_rule(dict.fromkeys(SIZES, (1, 7)), PRESET), None) is None


MASK = [False, *[True] * 6, *[False] * 5]
MASKS_SAID: dict[str, tuple[Sequence[bool], str, str]] = {
    "earlier": ([*MASK[1:], False], "shifted", "the mask begins 1 position earlier"),
    "later": ([False, False, *MASK[:-2]], "shifted", "2 positions later"),
    "zero": ([False] * 12, "zero", "no position is marked; the reference marks 6"),
    "inverted": ([not one for one in MASK], "inverted", "every position is inverted"),
    "short": (
        [False, *[True] * 5, *[False] * 6],
        "ranges",
        "positions 1 to 6 of 12 are marked; the reference marks 1 to 7",
    ),
}


@pytest.mark.parametrize(("actual", "kind", "words"), MASKS_SAID.values(), ids=MASKS_SAID)
def test_masks_are_described(actual: Sequence[bool], kind: str, words: str) -> None:
    found = simplest(of_mask(actual, MASK, [IMAGE if one else 9 for one in MASK], IMAGE))
    assert found is not None
    assert found.kind == kind
    assert words in found.text


def test_a_mask_that_follows_other_ids_is_laid_to_them() -> None:
    mask = [False, *[True] * 7, *[False] * 5]
    found = simplest(of_mask(mask, MASK, [IMAGE if one else 9 for one in mask], IMAGE))
    assert found is not None
    assert found.kind == "follows-ids"


@pytest.mark.parametrize(("actual", "kind"), [((3, 2), "exchanged"), ((1, 1), "whole"), ((2, 4), "replaced")])
def test_grids_are_described(actual: tuple[int, int], kind: str) -> None:
    found = simplest(of_grids([actual], [(2, 3)]))
    assert found is not None
    assert found.kind == kind


ANY_IDS = strategies.lists(strategies.sampled_from([BOS, IMAGE, 65, 66, 10**9, -1]), max_size=20)


@given(actual=ANY_IDS, expected=ANY_IDS)
def test_any_ids_are_described_without_an_error(actual: list[int], expected: list[int]) -> None:
    found = simplest(of_ids(actual, expected, VOCABULARY))
    assert found is not None
    assert 0 <= found.share <= 1
    masks = [[one == IMAGE for one in of] for of in (actual, expected)]
    marked = simplest(of_mask(masks[0], masks[1], actual, IMAGE))
    assert marked is not None
    assert 0 <= marked.share <= 1
