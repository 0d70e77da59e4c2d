"""Systematic errors, which rounding does not cause, and which real ports in fewer bits do not have.

``in_four_bits.json`` has the texts that ``mini`` read from ``dev-20`` on a CPU with all weights in 4 bits. One scale
covers 32 weights: the plants are ``sam.weights-int4``, ``clip.weights-int4`` and ``prefill.weights-int4``.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from pytest_dsocr.compare.boxes import compare_boxes
from pytest_dsocr.compare.budget import on_budget
from pytest_dsocr.compare.seams import compare_seam
from pytest_dsocr.compare.systematic import MARKUP
from pytest_dsocr.compare.text import compare_text
from pytest_dsocr.compare.tolerances import BUDGETS, tolerances
from pytest_dsocr.compare.verdict import Comparison, Symptom, Verdict
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.reference_result import Seam, spans_in
from tests.compare.made import random
from tests.recordings import FOLDER

IN_FOUR_BITS = json.loads(Path(__file__).with_name("in_four_bits.json").read_text(encoding="utf-8"))
INVOICE, LETTER = "invoice_016-gundam-markdown", "letter_004-gundam-markdown"
COORDINATES = re.compile(r"<\|det\|>.*?<\|/det\|>")


@cache
def recorded(case: str, key: str = "cpu-float32-eager") -> str:
    found: str = json.loads((FOLDER / "mini" / key / f"{case}.json").read_text(encoding="utf-8"))["observation"][
        "output"
    ]["text"]
    return found


def content(change: Callable[[str], str]) -> Callable[[str], str]:
    """Change a text but for its markup."""

    def changed(text: str) -> str:
        parts = zip(MARKUP.split(text), [*MARKUP.findall(text), ""], strict=True)
        return "".join(change(read) + markup for read, markup in parts)

    return changed


def moved(move: Callable[[float], float]) -> Callable[[str], str]:
    """Change each coordinate of a text."""
    return lambda text: COORDINATES.sub(
        lambda box: re.sub(r"\d+", lambda at: str(min(999, round(move(int(at[0]))))), box[0]), text
    )


def judged(actual: str, expected: str) -> tuple[Comparison, Comparison]:
    """Return the comparisons of text and boxes under a budget of four bits."""
    text = compare_text(actual, expected, 0.0)
    boxes = compare_boxes(
        spans_in(actual, DEEPSEEK_OCR.form), spans_in(expected, DEEPSEEK_OCR.form), tolerances("float32")
    )
    return on_budget(text, BUDGETS["int4"]), on_budget(boxes, BUDGETS["int4"])


@pytest.mark.parametrize(
    "change",
    [
        lambda text: re.sub("[0-9]", "7", text),
        lambda text: re.sub("[0-9]", "", text),
        lambda text: text.replace("e", "a"),
        lambda text: re.sub("e(?! )", "a", text),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace(" ", "  "),
    ],
    ids=["digits as 7", "digits left out", "e as a", "most e as a", "CR LF", "two blanks"],
)
def test_the_same_character_each_time_is_wrong_under_any_budget(change: Callable[[str], str]) -> None:
    expected = recorded(INVOICE)
    text, boxes = judged(content(change)(expected), expected)
    assert (text.verdict, boxes.verdict) == (Verdict.WRONG, Verdict.MATCH)
    assert Symptom.HABIT in text.signs


@pytest.mark.parametrize(
    "move", [lambda at: at + 50, lambda at: 0.95 * at, lambda at: 0.9 * at + 30], ids=["shift of 5 %", "scale", "both"]
)
def test_the_same_move_of_all_boxes_is_wrong_under_any_budget(move: Callable[[float], float]) -> None:
    expected = recorded(INVOICE)
    text, boxes = judged(moved(move)(expected), expected)
    assert (text.verdict, boxes.verdict) == (Verdict.DRIFT, Verdict.WRONG), "of the text only coordinates differ"
    assert boxes.signs == {Symptom.SHARED_MOVE}


def test_what_real_ports_read_otherwise_is_on_the_budget() -> None:
    """Ports in four bits, and bfloat16 on a GPU: up to 44 % of a page's characters are others."""
    in_bfloat16 = {case: recorded(case, "nvidia-h200-bfloat16-eager") for case in IN_FOUR_BITS}
    found = [
        one.verdict
        for texts in (IN_FOUR_BITS, in_bfloat16)
        for case, text in texts.items()
        for one in judged(text, recorded(case))
    ]
    assert len(found) == 80
    assert {*found} == {Verdict.MATCH, Verdict.DRIFT}
    assert found.count(Verdict.DRIFT) > 40


def test_few_errors_of_one_kind_are_no_habit() -> None:
    expected = recorded(LETTER)
    text, _ = judged(content(lambda read: read.replace("e", "a", 5))(expected), expected)
    assert text.verdict is Verdict.DRIFT


def test_one_factor_on_a_tensor_is_wrong_under_any_budget_and_noise_is_not() -> None:
    expected = random(400, 64, seed=1)
    noisy = expected + 0.05 * random(400, 64, seed=2)
    scaled, rounded = (
        on_budget(compare_seam("vision_fusion", Seam.of(one), Seam.of(expected), 1e-4), BUDGETS["int4"])
        for one in (1.02 * expected, noisy)
    )
    assert (scaled.verdict, rounded.verdict) == (Verdict.WRONG, Verdict.DRIFT)
    assert Symptom.SCALED in scaled.signs
