"""What a subject's steps come to along their own choice: its free reading, as the checkpoint's tokenizer tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.session import Session
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.observation import Best, Observation, Step
from pytest_dsocr.subjects.follow import follow
from pytest_dsocr.subjects.session import SessionSubject
from tests.subjects.seen import output_of, seen

TOKENS = 24
ANY_TIE = tolerances("float32").but({"ties": 10**9})


@pytest.fixture(scope="module")
def case(pages: Path) -> Case:
    return make_case(pages / "tiny.png", "free", "tiny", TOKENS)


@pytest.fixture(scope="module")
def own(tiny: Session[Any], case: Case) -> Observation:
    """What the session does by itself."""
    return seen(tiny, case)


def flipped(of: Observation, at: int, *, sees_both: bool = True) -> Observation:
    """What a reference would say that took the second best at a step, as good as the first, and ended there."""
    first, second, *_ = of.steps[at].best.ids
    best = of.steps[at].best.logits[0]
    ids = (second, first) if sees_both else (second, max(of.steps[at].best.ids) + 1)
    steps = (*of.steps[:at], Step(second, Best(ids, (best, best))))
    return replace(of, steps=steps, output=replace(of.output, text="what it read"))


@pytest.mark.parametrize("at", [0, 7, TOKENS - 1])
def test_it_is_what_the_subject_reads_freely(tiny: Session[Any], case: Case, own: Observation, at: int) -> None:
    answer = follow(SessionSubject(tiny), case, flipped(own, at), tokenizer=tiny.tokenizer)
    assert answer.forced is not None
    assert answer.forced[at].token == own.token_ids[at]
    assert answer.continued == own.output
    assert answer.text == own.output.text


def test_it_ends_where_the_subject_would(tiny: Session[Any], case: Case, own: Observation) -> None:
    policy = replace(tiny.policy, eos_id=own.token_ids[15])
    until = own.token_ids.index(own.token_ids[15])
    subject = SessionSubject(Session(tiny.model, tiny.tokenizer, policy=policy))
    answer = follow(subject, case, flipped(own, 5), tokenizer=tiny.tokenizer)
    assert answer.continued == output_of(tiny, case, [*own.token_ids[: until + 1]])
    at_its_end = follow(subject, case, flipped(own, until), tokenizer=tiny.tokenizer)
    assert at_its_end.continued == answer.continued


def test_it_goes_by_the_subjects_rule_for_ngrams(tiny: Session[Any], case: Case) -> None:
    policy = replace(tiny.policy, no_repeat_ngram_size=1)
    subject = SessionSubject(Session(tiny.model, tiny.tokenizer, policy=policy))
    own = seen(subject.session, case)
    assert own.token_ids != seen(tiny, case).token_ids, "the rule forbade nothing, so this shows little"
    assert follow(subject, case, flipped(own, 3), tokenizer=tiny.tokenizer).continued == own.output


def test_nothing_is_continued_where_nothing_differs_or_no_limits_make_a_tie_of_it(
    tiny: Session[Any], case: Case, own: Observation
) -> None:
    subject = SessionSubject(tiny)
    assert follow(subject, case, own, tokenizer=tiny.tokenizer).continued is None
    unseen = flipped(own, 7, sees_both=False)
    assert follow(subject, case, unseen, tokenizer=tiny.tokenizer).continued is None
    assert follow(subject, case, flipped(own, 7)).continued is None


class Liar(SessionSubject):
    """Reads nonsense, and says that this is what its tokens mean."""

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        return "nonsense"

    def text_of(self, token_ids: Sequence[int]) -> str:
        return "nonsense"


@pytest.mark.parametrize("at", [0, 7, TOKENS - 1])
def test_what_a_subject_says_of_its_tokens_is_not_what_they_mean(
    tiny: Session[Any], case: Case, own: Observation, at: int
) -> None:
    expected = flipped(own, at)
    for subject, verdicts in (
        (SessionSubject(tiny), (Verdict.TIE_FLIP, Verdict.MATCH, Verdict.TIE_FLIP)),
        (Liar(tiny), (Verdict.TIE_FLIP, Verdict.WRONG, Verdict.WRONG)),
    ):
        answer = follow(subject, case, expected, tokenizer=tiny.tokenizer)
        found = {one.what: one.verdict for one in compare_observations(answer, expected, ANY_TIE)}
        assert (found["tokens"], found["read"], found["text"]) == verdicts
