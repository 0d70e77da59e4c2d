"""Losses of a page in fewer bits, and differences that a budget covers."""

import math
from dataclasses import replace

import pytest

from pytest_dsocr.compare.budget import divergence, loss_of, on_budget
from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.tolerances import BUDGETS, LOSSES, tolerances
from pytest_dsocr.compare.verdict import Comparison, Symptom, Verdict
from pytest_dsocr.contract.markup import Box
from pytest_dsocr.records.reference_result import SpanSeen
from pytest_dsocr.records.subject_result import SubjectResult
from tests.compare.made import OUTPUT, answer, observation

TITLE, IMAGE = OUTPUT.spans


def test_divergence_is_that_of_the_two_distributions() -> None:
    halves, tenths = [0.0, 0.0], [math.log(0.9), math.log(0.1)]
    assert divergence(tenths, halves) == pytest.approx(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1))
    assert divergence([7.0, 7.0], halves) == pytest.approx(0, abs=1e-12), "a shift changes no distribution"
    assert divergence([math.nan, 0.0], halves) == divergence([0.0], halves) == math.inf


def lost(actual: SubjectResult) -> dict[str, float]:
    text = next(one for one in compare_observations(actual, observation(), tolerances("float32")) if one.what == "text")
    return loss_of(actual, observation(), text)


def test_equal_sides_lose_nothing() -> None:
    assert lost(answer(observation())) == dict.fromkeys(("kl", "tokens", "boxes", "characters", "pages"), 0.0)


def test_of_text_alone_no_distribution_is_known() -> None:
    assert [*lost(answer(observation(), forced=None))] == ["boxes", "characters", "pages"]


def test_one_other_token_of_three_and_its_logits() -> None:
    actual = answer(observation())
    assert actual.forced is not None
    first, second, third = actual.forced
    other = replace(second, token=7, at_reference=(7.0, 8.0, 2.0))
    found = lost(replace(actual, forced=(first, other, third)))
    assert found["tokens"] == pytest.approx(1 / 3)
    assert found["kl"] == pytest.approx(divergence((7.0, 8.0, 2.0), (8.0, 7.0, 2.0)) / 3) != 0


@pytest.mark.parametrize(
    ("spans", "share"),
    [
        ((TITLE, SpanSeen("image", (Box(5, 6, 7, 8), Box(9, 10, 11, 12 + 99.9)))), 0.1 / 3),
        ((TITLE, SpanSeen("image", (Box(5, 6, 7, 8),))), 1 / 3),
        ((TITLE._replace(label="text"), IMAGE), 1 / 3),
        ((), 1.0),
    ],
)
def test_a_box_loses_its_distance_and_one_without_a_partner_the_page(spans: tuple[SpanSeen, ...], share: float) -> None:
    assert lost(replace(answer(observation()), spans=spans))["boxes"] == pytest.approx(share)


@pytest.mark.parametrize(("text", "is_lost"), [(OUTPUT.text + "s", True), (OUTPUT.text[:-3], True), ("", True)])
def test_a_page_that_goes_on_breaks_off_or_is_empty_degenerates(text: str, is_lost: bool) -> None:
    found = lost(replace(answer(observation()), text=text))
    assert (found["pages"], found["characters"] > 0) == (float(is_lost), True)


def test_another_word_changes_characters_and_the_page_does_not_degenerate() -> None:
    found = lost(replace(answer(observation()), text=OUTPUT.text.replace("Minutes", "Minuted")))
    assert found["pages"] == 0.0
    assert found["characters"] == pytest.approx(1 / len(OUTPUT.text))


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Comparison("sam.page", Verdict.WRONG, ""), Verdict.DRIFT),
        (Comparison("tokens", Verdict.WRONG, ""), Verdict.DRIFT),
        (Comparison("text", Verdict.WRONG, "", signs=frozenset((Symptom.REPETITION,))), Verdict.DRIFT),
        (Comparison("input_ids", Verdict.WRONG, ""), Verdict.WRONG),
        (Comparison("read", Verdict.WRONG, ""), Verdict.WRONG),
        (Comparison("clip.rounding", Verdict.WRONG, ""), Verdict.WRONG),
        (Comparison("clip.page", Verdict.WRONG, "", signs=frozenset((Symptom.OTHER_SHAPE,))), Verdict.WRONG),
        (Comparison("logits", Verdict.WRONG, "", signs=frozenset((Symptom.NOT_FINITE,))), Verdict.WRONG),
        (Comparison("tokens", Verdict.WRONG, "", signs=frozenset((Symptom.NO_END,))), Verdict.WRONG),
        (Comparison("artefacts", Verdict.WRONG, "", signs=frozenset((Symptom.OTHER_FILES,))), Verdict.WRONG),
        (Comparison("text", Verdict.WRONG, "", signs=frozenset((Symptom.HABIT,))), Verdict.WRONG),
        (Comparison("sam.page", Verdict.MATCH, ""), Verdict.MATCH),
    ],
)
def test_a_budget_pays_for_size_alone(found: Comparison, verdict: Verdict) -> None:
    assert on_budget(found, BUDGETS["int8"]).verdict is verdict


@pytest.mark.parametrize(
    ("what", "signs", "kinds"),
    [
        ("sam.page/3", (), {"kl"}),
        ("logits", (), {"kl"}),
        ("prefill_best", (), {"kl"}),
        ("tokens", (), {"tokens"}),
        ("spans", (), {"boxes"}),
        ("boxes", (), {"boxes"}),
        ("artefacts", (), {"boxes"}),
        ("text", (), {"characters"}),
        ("result.mmd", (), {"characters"}),
        ("text", (Symptom.REPETITION,), {"characters", "pages"}),
    ],
)
def test_a_kind_that_a_budget_does_not_limit_keeps_its_exact_limits(
    what: str, signs: tuple[Symptom, ...], kinds: set[str]
) -> None:
    found = Comparison(what, Verdict.WRONG, "", signs=frozenset(signs))
    assert on_budget(found, kinds).verdict is Verdict.DRIFT
    for kind in kinds:
        assert on_budget(found, {*LOSSES} - {kind}).verdict is Verdict.WRONG
