"""Rows of a batch that attend to padding are found by their texts, and no way is named for other texts."""

from pathlib import Path

import torch
from torch import Tensor

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.explain.batch import describe_batch
from pytest_dsocr.explain.mistake import Changes, blocks_of
from pytest_dsocr.layers.attention import eager
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import make_case
from suites.cache.test_batches import OWN
from suites.contract.asked import sizes_of
from tests.describe.real import PAGE, engine

TOKENS = 40


def _seeing_padding(changes: Changes) -> None:
    for layer in blocks_of(engine(), "prefill"):
        changes.set(layer.self_attn, "attend", lambda q, k, v, lengths: eager(q, k, v, None))


class Padded(KVCache):
    """Gives every row of a batch the position of its longest row."""

    def positions(self, new: int, device: torch.device) -> Tensor:
        if self.is_ragged:
            return torch.full((len(self.seen), new), max(self.seen), device=device)
        return super().positions(new, device)

    def append(self, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        if self.is_ragged:
            positions = torch.tensor(self.slots, device=keys.device)[:, None]
        return super().append(layer, keys, values, positions)


def _turned_too_far(changes: Changes) -> None:
    changes.set(engine().model, "join_caches", Padded.join)


PLANTED = {
    _seeing_padding: "attention to the padding behind a row's own tokens",
    _turned_too_far: "the longest row's position for each new token",
}


def test_rows_that_attend_to_padding_are_found(tmp_path: Path) -> None:
    pages = [tmp_path / "one.png", tmp_path / "two.png"]
    for page, size in zip(pages, ((250, 250), (1280, 640)), strict=True):
        load_image(PAGE).resize(size).save(page)
    cases = [make_case(page, "free", sizes_of(OWN, DEEPSEEK_OCR), TOKENS, family=DEEPSEEK_OCR) for page in pages]

    def read() -> list[str]:
        first = cases[0]
        made = engine().run_batch(pages, prompt=first.prompt, preset=first.preset, max_new_tokens=TOKENS)
        return [one.text for one in made]

    with Changes() as blind, torch.no_grad():
        blind.set(engine().pipeline, "vision", lambda _: [])  # what the model sees does not matter here
        right = read()
        for plant, words in PLANTED.items():
            with Changes() as changes:
                plant(changes)
                padded = read()
            assert padded != right
            found = describe_batch(engine(), cases, padded)
            assert found is not None
            assert found.text.startswith(f"with {words} in the shorter row 1 of 2, which ")
        assert describe_batch(engine(), cases, right) is None
        assert describe_batch(engine(), cases, ["other", "texts"]) is None
