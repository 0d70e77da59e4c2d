"""Messages about texts that a subject read in two ways: each follows from a measurement."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.readings import EITHER, STATE
from pytest_dsocr.compare.verdict import Comparison, Reason, Symptom, Verdict
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.retrace import Retraced
from suites.cache.test_batches import EXCHANGED, _exchanged
from suites.cache.test_pages import _of_earlier, alike
from suites.cache.ways import TextWays, of_state
from suites.contract.pages import write_page
from tests.cache.faulty import Remembers
from tests.cache.own import text_ways

WRONG = Comparison("text/together", Verdict.WRONG, "they differ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("abcdef", ("they differ",)),
        ("abcxyf", ("they differ", "1 edits", "2 from its own")),
        ("abcxyz", ("they differ", EXCHANGED)),
    ],
)
def test_a_batch_is_reported_as_exchanged_only_if_it_gives_the_text_of_another_page(
    text: str, said: tuple[str, ...]
) -> None:
    found = _exchanged(WRONG, text, 0, ["abcdef", "abcxyz"]).measured
    assert all(one in found for one in said)
    assert (EXCHANGED in found, "edits" in found) == (EXCHANGED in said, "1 edits" in said)


def test_pages_with_one_text_are_reported_with_it_and_with_no_mistake() -> None:
    assert "'# A title'" in alike("# A title")
    assert "no text" in alike("")
    assert not [one for one in ("check", "cache", "file name") if one in alike("") + alike("a")]


def test_a_second_page_read_as_the_first_is_wrong_and_the_first_one_is_not() -> None:
    found = _of_earlier("# One", "# One", "# Two")
    assert (found.what, found.verdict, found.signs) == ("text/another page", Verdict.WRONG, frozenset((Symptom.STATE,)))
    assert "which is right" in found.measured
    assert found.details == (f"check: whether it differs {STATE}",)
    for first, own in (("# Else", "# Two"), ("# One", "# One")):
        assert _of_earlier("# One", first, own).reason is Reason.TELLS_NOTHING


class LeadsNowhere(TextWays):
    """Texts to which no steps lead."""

    def retraced(self, case: Case, text: str) -> Retraced:
        """Return that no step leads on."""
        return Retraced((), (), is_whole=False)


def test_a_text_that_the_test_stops_is_not_reported_as_cut(tiny: Engine[Any], tmp_path: Path) -> None:
    ways = LeadsNowhere(**vars(text_ways(EngineSubject(tiny), tiny.tokenizer)))
    text, whole = "the first of two", "the first of two lines, and more"
    used = len(tiny.tokenizer.encode(text))
    case = make_case(write_page("tiny", tmp_path), "free", "tiny", used, family=DEEPSEEK_OCR)
    for limit, is_cut in ((used, False), (used + 10, True)):
        found = ways.compare("text", replace(case, max_new_tokens=limit), text, whole, "why")
        assert (Symptom.TRUNCATION in found.signs, "truncation" in found.measured) == (is_cut, is_cut)


class LeadsOn(TextWays):
    """Texts along which steps lead for some tokens."""

    def retraced(self, case: Case, text: str) -> Retraced:
        """Return that the steps go on after the tokens of the text."""
        return Retraced((*self.tokenizer.encode(text),), (), is_whole=False)


def test_a_text_with_right_tokens_is_not_reported_as_other_tokens(tiny: Engine[Any], tmp_path: Path) -> None:
    ways = LeadsOn(**vars(text_ways(EngineSubject(tiny), tiny.tokenizer)))
    case = make_case(write_page("tiny", tmp_path), "free", "tiny", 99, family=DEEPSEEK_OCR)
    whole = "boxes of [1, 2, 3, 4] and more"
    used = len(tiny.tokenizer.encode(whole[:8]))
    assert f"go on after step {used}" in ways.compare("text", case, whole[:8], whole, "why").measured
    assert "left out at " in ways.compare("text", case, whole.replace(", ", ","), whole, "why").measured
    assert "no token that ties" in ways.compare("text", case, whole.replace("boxes", "foxes"), whole, "why").measured


def test_a_page_that_reads_otherwise_the_next_time_shows_state_and_five_alike_exclude_chance(
    tiny: Engine[Any], tmp_path: Path
) -> None:
    case = make_case(write_page("alpha", tmp_path), "markdown", "tiny", 2, family=DEEPSEEK_OCR)
    for subject, is_steady in ((EngineSubject(tiny), True), (Remembers(tiny), False)):
        ways = text_ways(subject, tiny.tokenizer)
        found = ways.steady(WRONG, case, ways.asked.read(case))
        assert (found == WRONG, Symptom.STATE not in found.signs) == (is_steady, is_steady)
    checks = [of_state(WRONG, "a", texts).details[0] for texts in ("bbbbb", "bbbb", "bbbbc")]
    assert [(STATE in one, EITHER in one) for one in checks] == [(True, False), (False, True), (False, True)]
