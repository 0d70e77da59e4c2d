"""Sentences about mistakes, which are built from parts, read as English."""

import re

import pytest

from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.explain.mistake import Changes, Mistake, Target, blocks_of, model_of
from pytest_dsocr.explain.rows import phrase
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from tests.describe.real import engine

FAULTS = {
    "two articles or determiners": r"\b(a|an|the|every|each) (the|a|an|every|each)\b",
    "a number without its plural": r"\b1 (digits|tokens|pixels|heads|blocks)\b",
    "two ends": r"(in front of \w+('s)?) in front of|,,|  ",
    "its owner is missing": r"^its\b",
    "a list with two ands": r"\w+ and \w+ and \w+ (padded|with|computed|left)",
    "an open clause": r", not [^,]* in (SAM|CLIP|the decoder|the tower)\b",
    "several with one's": r"(positions|norms|net_2 and net_3) .*\bits (first|last|middle|edges|weights)\b",
}
"""Patterns of sentences that no one would write."""


def every() -> list[Mistake]:
    """Return the mistakes of all models, each sentence once."""
    known = {one.words: one for family in MODELS.values() for one in mistakes(family).values()}
    return [*known.values()]


@pytest.mark.parametrize("fault", FAULTS)
def test_no_sentence_has_a_fault_of_its_parts(fault: str) -> None:
    assert [one.words for one in every() if re.search(FAULTS[fault], one.words)] == []


def test_a_clause_at_the_end_of_a_row_is_closed() -> None:
    said = [phrase("{} in SAM", one) for one in ("rows, not columns", "no rows", "keys, queries and values", "x,")]
    assert said == ["rows, not columns, in SAM", "no rows in SAM", "keys, queries and values in SAM", "x, in SAM"]


@pytest.mark.parametrize("stage", ["sam", "clip", "prefill"])
def test_norms_are_those_of_the_blocks_unless_more_are_changed(stage: str) -> None:
    one = mistakes(DEEPSEEK_OCR)[f"{stage}.epsilon-0.001"]
    blocks = blocks_of(engine(), stage)
    inside = {id(module) for block in blocks for module in block.modules()}
    with Changes() as changes:
        one.plant(Target.of_stage(engine(), changes, stage))
        changed = [id(module) for module in model_of(engine()).modules() if getattr(module, "eps", 0) == 1e-3]
    assert len(changed) >= 2 * len(blocks)
    assert ("blocks" in one.words) is (set(changed) <= inside)
