"""Rows of a batch that attend to padding are found by their texts, and no way is named for other texts."""

from pathlib import Path

import torch

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.explain.batch import describe_batch
from pytest_dsocr.explain.mistake import Changes, blocks_of
from pytest_dsocr.layers.attention import eager
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import make_case
from suites.cache.test_batches import OWN
from suites.contract.asked import sizes_of
from tests.describe.real import PAGE, engine

TOKENS = 40


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
        with Changes() as changes:
            for layer in blocks_of(engine(), "prefill"):
                changes.set(layer.self_attn, "attend", lambda q, k, v, lengths: eager(q, k, v, None))
            padded = read()
        assert padded != right
        found = describe_batch(engine(), cases, padded)
        assert found is not None
        assert found.text.startswith(
            "with attention to the padding behind a row's own tokens in the shorter row 0 of 2"
        )
        assert describe_batch(engine(), cases, right) is None
