"""Continuous batching: pages that join as others end, each as if it were alone."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.fast import batch as batching
from pytest_dsocr.engine.fast import model as fast_model
from pytest_dsocr.engine.fast import slots
from pytest_dsocr.engine.fast.batch import PageBatch
from pytest_dsocr.engine.fast.step import allowed
from pytest_dsocr.engine.result import Result
from pytest_dsocr.foundation.errors import DsocrError
from suites.contract.pages import PAGES

NAMES = ("square", "tiny", "landscape")
TOKENS = 12


@pytest.fixture(scope="module")
def fast() -> Engine[Any]:
    return Engine.from_checkpoint("mini", engine="fast")


@pytest.fixture(scope="module")
def alone(fast: Engine[Any]) -> list[Result]:
    """Two of the pages end after one token, the others at the ceiling."""
    results = [fast.run(PAGES[name](), preset="tiny", max_new_tokens=TOKENS) for name in NAMES]
    assert {len(result.token_ids) for result in results} == {1, TOKENS}
    return results


def together(batch: PageBatch, names: tuple[str, ...] = NAMES, tokens: int = TOKENS) -> list[Result]:
    return batch.read_many([PAGES[name]() for name in names], preset="tiny", max_new_tokens=tokens)


def assert_same(found: list[Result], expected: list[Result]) -> None:
    assert [replace(result, stage_times={}) for result in found] == expected


@pytest.mark.parametrize(
    ("rows", "many_rows", "steps_at_once", "room"),
    [(2, 99, 1, 1), (3, 1, 16, 256), (8, 99, 3 * TOKENS, 256)],
    ids=["a step at a time in memory that grows", "weights read once", "more rows than pages"],
)
def test_each_page_is_read_as_if_it_were_alone(
    fast: Engine[Any],
    alone: list[Result],
    rows: int,
    many_rows: int,
    steps_at_once: int,
    room: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fast_model, "MANY_ROWS", many_rows)
    monkeypatch.setattr(batching, "STEPS_AT_ONCE", steps_at_once)
    monkeypatch.setitem(slots.LEAST_ROOM, "cpu", room)
    batch = PageBatch(fast, rows)
    assert_same(together(batch), alone)
    assert batch.read_many([]) == []


def test_n_grams_and_another_end(fast: Engine[Any]) -> None:
    """Of a policy under which pages go on longer, and may repeat less, than under the usual one."""
    session = Engine(fast.model, fast.tokenizer, policy=replace(fast.policy, no_repeat_ngram_size=3, eos_id=2))
    expected = [session.run(PAGES[name](), preset="tiny", max_new_tokens=TOKENS) for name in NAMES[:3]]
    assert_same(together(PageBatch(session, 2), NAMES[:3]), expected)
    usual = [fast.run(PAGES[name](), preset="tiny", max_new_tokens=TOKENS) for name in NAMES[:3]]
    assert [result.token_ids for result in expected] != [result.token_ids for result in usual]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 20, 500])
def test_the_n_gram_rule_is_that_of_one_row(size: int) -> None:
    draw = random.Random(size)
    for length in (1, 2, 18, 19, 20, 60):
        tokens = torch.tensor([[draw.randrange(3) for _ in range(81)] for _ in range(4)])
        positions = [max(length - 1 - row * length // 4, 0) for row in range(4)]
        found = allowed(torch.zeros(4, 5), tokens, torch.tensor(positions), size)
        for row, last in enumerate(positions):
            banned = NgramBan(size, tokens[row, : last + 1].tolist()).banned() if size else []
            assert found[row].isinf().nonzero().flatten().tolist() == banned


def test_a_page_that_cannot_be_read_leaves_the_batch_usable(
    fast: Engine[Any], alone: list[Result], tmp_path: Path
) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    batch = PageBatch(fast, 2)
    with pytest.raises(DsocrError, match=r"broken\.png"):
        batch.read_many([PAGES["square"](), PAGES["tiny"](), PAGES["square"](), tmp_path / "broken.png"], preset="tiny")
    assert_same(together(batch, NAMES[:2]), alone[:2])


def test_what_another_page_left_is_not_read(fast: Engine[Any], alone: list[Result]) -> None:
    batch = PageBatch(fast, 2)
    together(batch)
    slot = batch._board._slot
    assert slot is not None
    slot.values.fill_(torch.nan)
    slot.keys.fill_(torch.nan)
    assert_same(together(batch, NAMES[1:]), alone[1:])


def test_stage_times_are_those_of_all_pages() -> None:
    session = Engine.from_checkpoint("synthetic:tiny", engine="fast", instrument="timed")
    first, second = together(PageBatch(session, 2), NAMES[:2], tokens=3)
    assert first.stage_times == second.stage_times
    assert {"tokenizer", "sam", "clip", "prefill", "decode", "postprocess"} <= first.stage_times.keys()
    assert len(first.stage_times["prefill"].runs_ms) == 2


def test_what_cannot_be_batched_is_refused(tiny: Engine[Any], fast: Engine[Any]) -> None:
    with pytest.raises(DsocrError, match="only the fast session batches pages"):
        PageBatch(tiny)
    with pytest.raises(DsocrError, match="0 rows hold no page"):
        PageBatch(fast, 0)
    with pytest.raises(DsocrError, match="not batched under autocast"):
        PageBatch(Engine(fast.model, fast.tokenizer, autocast=True))
