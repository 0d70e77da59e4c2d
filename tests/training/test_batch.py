"""Rows and batches of training: what the model reads and says, and where in it which loss looks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ci.training import batch as batch_module
from ci.training import feed
from ci.training.batch import EMPTY_SAMPLES, TOKENS_STEP, UNKNOWN, Asked, Row, on_device
from ci.training.feed import TrainingPages, make_row
from ci.training.generator import GRIDS, generate
from ci.training.recipe import BLIND_SHARE, FREE_SHARE, PRESET_SHARES, SCHEDULE
from ci.training.seeds import FIRST_TRAINING_SEED
from pytest_dsocr.contract.inputs import prepare_inputs
from pytest_dsocr.contract.presets import PRESETS, Grid
from pytest_dsocr.contract.prompt import EOS
from pytest_dsocr.engine.tokenizer import Tokenizer
from tests.training.small import BACKEND, draw, kind
from tests.training.small import SCHEDULE as SMALL

TOKENIZER = Tokenizer.over(BACKEND)
SEEDS = range(20, 24)


@pytest.mark.parametrize(
    ("preset", "grid"), [("gundam", (2, 1)), ("gundam", (1, 1)), ("large", (1, 2)), ("tiny", (2, 2))]
)
@pytest.mark.parametrize("prompt", ["markdown", "free"])
def test_a_row_is_the_contracts_prompt_and_the_pages_answer(
    preset: str, grid: Grid, prompt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "FREE_SHARE", float(prompt == "free"))
    monkeypatch.setattr(feed, "BLIND_SHARE", 0.0)
    page, row = generate(9, grid=grid), make_row(9, kind(preset, grid), BACKEND)
    expected = prepare_inputs(page.image, prompt, preset, TOKENIZER)
    assert row.ids[: row.prompt_tokens] == expected.input_ids[0].tolist()
    assert len(row.empty) == expected.image_tokens
    assert TOKENIZER.decode(row.ids[row.prompt_tokens :]) == page.answer(grounded=prompt == "markdown") + EOS
    assert np.array_equal(row.page, np.array(page.image))
    assert not row.blind


def test_a_blind_row_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "BLIND_SHARE", 1.0)
    row = make_row(9, kind(), BACKEND)
    assert (row.blind, row.ids[row.prompt_tokens :]) == (True, [TOKENIZER.special.eos])


def test_rows_are_free_and_blind_as_often_as_the_recipe_says(monkeypatch: pytest.MonkeyPatch) -> None:
    page = generate(0, level=0, grid=(1, 1))
    monkeypatch.setattr(feed, "generate", lambda seed, **_: page)
    rows = [make_row(seed, kind(), BACKEND) for seed in range(600)]
    prompt_tokens = prepare_inputs(page.image, "free", "small", TOKENIZER).prompt_tokens
    free = sum(row.prompt_tokens == prompt_tokens for row in rows) / len(rows)
    assert free == pytest.approx(FREE_SHARE, abs=0.06)
    assert sum(row.blind for row in rows) / len(rows) == pytest.approx(BLIND_SHARE, abs=0.015)


@pytest.fixture(scope="module")
def asked() -> Asked:
    return draw("gundam", (2, 1), SEEDS).asked


def rows() -> list[Row]:
    return [make_row(seed, kind("gundam", (2, 1)), BACKEND) for seed in SEEDS]


def test_rows_lie_side_by_side_padded_at_the_end(asked: Asked) -> None:
    longest = max(len(row.ids) for row in rows())
    assert longest <= asked.ids.shape[1] < longest + TOKENS_STEP
    assert asked.ids.shape[1] % TOKENS_STEP == 0
    for found, row in zip(asked.ids.tolist(), rows(), strict=True):
        assert found == row.ids + [TOKENIZER.special.pad] * (len(found) - len(row.ids))


def test_every_token_of_an_answer_is_asked_once_by_the_one_before(asked: Asked) -> None:
    flat = asked.ids.flatten()
    places = sorted([*asked.asked_text.tolist(), *asked.asked_number.tolist()])
    width = asked.ids.shape[1]
    expected = [n * width + at - 1 for n, row in enumerate(rows()) for at in range(row.prompt_tokens, len(row.ids))]
    assert places == expected
    assert torch.equal(flat[asked.asked_text + 1], asked.text)
    said = [TOKENIZER.decode([token]) for token in flat[asked.asked_number + 1].tolist()]
    assert said == [str(n) for n in asked.number.tolist()]


def test_coordinates_are_numbers_and_numbers_of_texts_are_text(asked: Asked) -> None:
    boxes = Counter[int]()
    for row, seed in zip(rows(), SEEDS, strict=True):
        page = generate(seed, grid=(2, 1))
        if TOKENIZER.decode(row.ids[row.prompt_tokens : -1]) == page.answer(grounded=True):
            boxes.update(side for block in page.blocks for rect in block.rects for side in page.units(rect))
    assert Counter(asked.number.tolist()) == boxes
    assert boxes
    assert any(TOKENIZER.decode([token]).isdigit() for token in asked.text.tolist())


def test_vision_targets_are_the_rows_own_one_row_after_another(asked: Asked) -> None:
    tokens = asked.image_tokens
    words = [(n * tokens + at, word, after) for n, row in enumerate(rows()) for at, word, after in row.words]
    assert [*zip(asked.word_at.tolist(), asked.word.tolist(), strict=True)] == [(at, word) for at, word, _ in words]
    following = [(at, after) for at, _, after in words if after != UNKNOWN]
    assert [*zip(asked.following_at.tolist(), asked.following.tolist(), strict=True)] == following
    empty = np.concatenate([row.empty for row in rows()])
    assert empty[asked.empty_at].all()
    assert len(asked.empty_at) == empty.sum() <= EMPTY_SAMPLES, "so few are all asked"
    assert asked.first_page_token + asked.labels.shape[1] + 1 == tokens
    for name in ("labels", "rects", "edges"):
        assert np.array_equal(getattr(asked, name), np.stack([getattr(row, name) for row in rows()]))
    assert asked.blind.tolist() == [row.blind for row in rows()]


@pytest.mark.parametrize(
    ("preset", "grid", "crops"), [("gundam", (1, 2), 2), ("gundam", (1, 1), 0), ("base", (2, 1), 0)]
)
def test_a_batch_on_the_device_has_its_views(preset: str, grid: Grid, crops: int) -> None:
    drawn = draw(preset, grid)
    batch = on_device(drawn, torch.device("cpu"))
    side = PRESETS[preset].view_size
    assert (batch.crops.shape, batch.pages.shape) == ((2, crops, 3, 640, 640), (2, 3, side, side))
    assert batch.crops.dtype == batch.pages.dtype == torch.uint8
    assert batch.grid == (grid if crops else (1, 1))
    assert all(as_value(a) == as_value(b) for a, b in zip(batch.asked, drawn.asked, strict=True))


def as_value(part: Any) -> Any:
    return part.tolist() if torch.is_tensor(part) else part


def test_of_many_empty_tokens_some_are_asked_all_over_the_batch(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "EMPTY_SAMPLES", 40)
    some, every = draw("gundam", (2, 1), SEEDS).asked.empty_at.tolist(), asked.empty_at.tolist()
    assert 40 <= len(some) < 80 < len(every)
    assert set(some) < set(every)
    assert {at // asked.image_tokens for at in some} == {0, 1, 2, 3}


def test_batches_follow_from_the_recipe_alone() -> None:
    schedule = replace(SMALL, batch_pages=1)
    one, again = TrainingPages(schedule)[3], TrainingPages(schedule)[3]
    assert all(torch.equal(a, b) for a, b in zip(one.pages, again.pages, strict=True))
    assert torch.equal(one.asked.ids, again.asked.ids)
    assert [len(page.shape) for page in one.pages] == [3]


def assert_shares(found: Counter[Any], shares: Mapping[Any, float]) -> None:
    assert set(found) == set(shares)
    for name, share in shares.items():
        expected = share / sum(shares.values())
        assert found[name] / found.total() == pytest.approx(expected, abs=4 * (expected / found.total()) ** 0.5)


def test_steps_are_of_the_recipes_presets_grids_and_levels() -> None:
    pages = TrainingPages(SCHEDULE)
    kinds = [pages.kind(step) for step in range(SCHEDULE.courses[0][1])]
    assert_shares(Counter(kind.preset.name for kind in kinds), PRESET_SHARES)
    assert_shares(Counter(kind.grid for kind in kinds), GRIDS)
    full = sum(kind.level == 1 for kind in kinds) / len(kinds)
    assert full == pytest.approx(0.5, abs=0.05)
    easy = [(step, kind.level) for step, kind in enumerate(kinds) if kind.level < 1]
    assert all(0.3 * SCHEDULE.level(step) <= level <= SCHEDULE.level(step) for step, level in easy)
    assert [*kinds[0].seeds, *kinds[1].seeds] == [FIRST_TRAINING_SEED + n for n in range(2 * SCHEDULE.batch_pages)]
