"""A whole case: what is compared, in which order, under which limit, and what is not offered."""

import math
from dataclasses import replace
from typing import Any

import pytest

from pytest_dsocr.compare.case import CaseReport, CaseRun
from pytest_dsocr.compare.observations import DECODING, FILES, OUTPUT, compare_observations
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import Comparison, Reason, Symptom, Verdict, not_compared, worst
from pytest_dsocr.contract import COMPARED
from pytest_dsocr.records.config import Level, SubjectFaultError
from pytest_dsocr.records.reference_result import Best, InputsDigest, NotFinite, ReferenceResult, Seam, Step
from pytest_dsocr.records.subject_result import NO_CHOICE, ForcedStep, Rounding, SubjectPart
from tests.compare.made import OUTPUT as SAID
from tests.compare.made import STEPS, along, answer, input_tensors, observation, seam_tensors

LIMITS = Tolerances("float32", seam=1e-3, logits=1e-1, ties=64, mantissa_bits=23)
INPUTS = [*COMPARED]
SEAMS = ["sam.page", "vision_fusion", "prefill"]
OUTPUTS = [*OUTPUT, *FILES]
SEAM = observation().seams["sam.page"]
OTHER = Seam.of(2 * seam_tensors()["sam.page"])


def compared(expected: ReferenceResult, level: Level = Level.STAGES, **changes: Any) -> dict[str, Comparison]:
    """Compare a subject that equals the reference except for ``changes``."""
    found = list(compare_observations(answer(expected, level, **changes), expected, LIMITS))
    assert len({comparison.what for comparison in found}) == len(found)
    return {comparison.what: comparison for comparison in found}


def verdicts(found: dict[str, Comparison]) -> dict[str, Verdict]:
    """Return the verdicts other than MATCH."""
    return {what: one.verdict for what, one in found.items() if one.verdict is not Verdict.MATCH}


@pytest.mark.parametrize("keep_values", [True, False])
def test_everything_of_a_case_is_compared_in_the_stages_order(keep_values: bool) -> None:
    found = compared(observation(keep_values=keep_values))
    assert list(found) == [*INPUTS, *SEAMS, *DECODING, *OUTPUTS]
    assert verdicts(found) == {}


def test_first_tokens_have_the_limit_of_logits_and_other_seams_their_own() -> None:
    scaled = {name: Seam.of(tensor * 1.01) for name, tensor in seam_tensors().items()}
    found = compared(observation(), seams=scaled)
    assert [found[name].verdict for name in SEAMS] == [Verdict.WRONG, Verdict.WRONG, Verdict.DRIFT]
    assert worst(found.values()) is Verdict.WRONG


def test_rounding_of_a_stage_comes_before_the_tensors_of_later_stages() -> None:
    wrong = Rounding(1, differing=0.1, part="vision_fusion", ratio=128.0)
    found = compared(observation(), rounding={"vision_fusion": wrong, "clip": Rounding(4)})
    made = [*found][len(INPUTS) :]
    assert made[:5] == ["sam.page", "vision_fusion", "vision_fusion.rounding", "prefill", "clip.rounding"]
    assert verdicts(found) == {"vision_fusion.rounding": Verdict.WRONG}


@pytest.mark.parametrize(
    ("level", "left"),
    [
        (Level.TEXT, [*INPUTS, *SEAMS, *DECODING]),
        (Level.INPUTS, [*SEAMS, *DECODING]),
        (Level.STAGES, []),
        (Level.MODULES, []),
    ],
)
def test_what_is_above_the_level_is_not_offered_and_passes(level: Level, left: list[str]) -> None:
    found = compared(observation(), level)
    assert list(found) == [*INPUTS, *SEAMS, *DECODING, *OUTPUTS]
    assert [what for what, one in found.items() if one.reason is Reason.NOT_OFFERED] == left
    assert verdicts(found) == dict.fromkeys(left, Verdict.NOT_COMPARED)
    assert all(one.passes for one in found.values())


@pytest.mark.parametrize(
    ("name", "level", "actual", "expected", "promised", "verdict", "passes"),
    [
        ("clip.page", Level.STAGES, SEAM, SEAM, True, Verdict.MATCH, True),
        ("clip.page", Level.STAGES, SEAM, SEAM, False, Verdict.MATCH, True),
        ("clip.page", Level.STAGES, OTHER, SEAM, False, Verdict.WRONG, False),
        ("clip.page", Level.STAGES, None, SEAM, True, Verdict.NOT_COMPARED, False),
        ("clip.page", Level.STAGES, None, SEAM, False, Verdict.NOT_COMPARED, True),
        ("clip.page", Level.STAGES, SEAM, None, True, Verdict.NOT_COMPARED, False),
        ("clip.page", Level.STAGES, SEAM, None, False, Verdict.NOT_COMPARED, False),
        ("clip.page", Level.STAGES, None, None, True, None, True),
        ("sam.page/3", Level.MODULES, SEAM, SEAM, False, Verdict.MATCH, True),
        ("sam.page/3", Level.MODULES, OTHER, SEAM, False, Verdict.WRONG, False),
        ("sam.page/3", Level.MODULES, None, SEAM, False, Verdict.NOT_COMPARED, False),
        ("sam.page/3", Level.MODULES, SEAM, None, False, None, True),
        ("sam.page/3", Level.STAGES, None, SEAM, False, Verdict.NOT_COMPARED, True),
        ("sam.page/3", Level.TEXT, None, SEAM, False, Verdict.NOT_COMPARED, True),
    ],
)
def test_a_seam_must_be_given_where_it_is_declared_and_a_block_where_named_modules_are(
    name: str,
    level: Level,
    actual: Seam | None,
    expected: Seam | None,
    promised: bool,
    verdict: Verdict | None,
    passes: bool,
) -> None:
    sides = [{**observation().seams, **({name: seam} if seam else {})} for seam in (actual, expected)]
    declared = frozenset({*SEAMS, *([name] if promised else [])})
    changes = {"seams": sides[0], "promised": declared} if level >= Level.STAGES else {}
    found = compared(observation(seams=sides[1]), level, **changes)
    comparison = found.get(name)
    assert (comparison and comparison.verdict) == verdict
    assert all(one.passes for one in found.values()) is passes


FAULT = SubjectFaultError("decode", "it raised")
NO_PREFILL = {name: seam for name, seam in observation().seams.items() if name != "prefill"}
PREVENTED: list[tuple[SubjectPart, dict[str, Any], list[str]]] = [
    ("inputs", {"inputs": None}, INPUTS),
    ("vision", {"seams": {"prefill": observation().seams["prefill"]}}, ["sam.page", "vision_fusion"]),
    ("prefill", {"seams": NO_PREFILL, "prefill_best": None}, ["prefill", "prefill_best"]),
    ("step", {"forced": None}, ["logits", "tokens"]),
    ("read", {"mmd": None, "artefacts": None}, ["text", "spans", "boxes"]),
    ("write", {"mmd": None, "artefacts": None}, ["result.mmd", "artefacts"]),
]


@pytest.mark.parametrize(("part", "changes", "names"), PREVENTED, ids=[part for part, _, _ in PREVENTED])
def test_what_an_error_prevented_is_lost_and_nothing_else_is(
    part: SubjectPart, changes: dict[str, Any], names: list[str]
) -> None:
    found = compared(observation(), fault=FAULT, lost=frozenset((part,)), **changes)
    assert list(found) == [*INPUTS, *SEAMS, *DECODING, *OUTPUTS]
    assert [what for what, one in found.items() if one.reason is Reason.LOST] == names
    assert [what for what, one in found.items() if not one.passes] == names
    assert all(found[name].lost_to is FAULT for name in names)


@pytest.mark.parametrize(
    ("heard", "verdict", "measured"),
    [
        ((), Verdict.NOT_COMPARED, "step 0 lost to an error: it raised; it was the first"),
        (along(STEPS[:2]), Verdict.NOT_COMPARED, "step 2 lost to an error: it raised; MATCH up to there, all 2"),
        (along((STEPS[0], STEPS[2])), Verdict.WRONG, "1 of 2 equal, 0 ties; first differing step 1"),
    ],
    ids=["at the first", "right until then", "wrong before"],
)
def test_steps_up_to_an_error_are_compared(heard: tuple[ForcedStep, ...], verdict: Verdict, measured: str) -> None:
    found = compared(observation(), fault=FAULT, lost=frozenset(("step", "read", "write")), forced=heard)
    assert (found["tokens"].verdict, found["tokens"].measured) == (verdict, measured)
    assert not any(found[what].passes for what in (*DECODING[1:], *OUTPUTS))


def test_each_part_is_compared_with_the_references() -> None:
    other_ids = {**input_tensors(), "input_ids": input_tensors()["input_ids"] + 1}
    changes: dict[str, tuple[Any, str]] = {
        "inputs": (InputsDigest.of(other_ids), "input_ids"),
        "prefill_best": (Best((7, 3, 9, 4), (99.0, 4.0, 2.0, 1.0)), "prefill_best"),
    }
    for field, (value, what) in changes.items():
        assert what in verdicts(compared(observation(), **{field: value})), field


@pytest.mark.parametrize(
    ("text", "limit", "verdict"),
    [(SAID.text, 0.0, Verdict.MATCH), ("M" + SAID.text[1:], 0.1, Verdict.DRIFT), ("no", 0.1, Verdict.WRONG)],
)
def test_what_is_read_against_ones_own_steps_is_reported_before_the_text(
    text: str, limit: float, verdict: Verdict
) -> None:
    actual = answer(observation(), text=text, reread=True)
    found = {one.what: one for one in compare_observations(actual, observation(), LIMITS.but({"text": limit}))}
    assert list(found)[-6:] == ["read", *OUTPUTS]
    assert found["read"].verdict is found["text"].verdict is verdict
    says = "disagrees" if verdict is Verdict.WRONG else "agrees"
    assert found["read"].measured == f"{says} with the subject's own 3 steps, which equal the reference's"


def test_where_the_subject_makes_the_same_of_its_tokens_the_text_is_wrong_and_not_read() -> None:
    actual = answer(observation(), text="no", reread=True, text_of_tokens="no")
    found = {one.what: one.verdict for one in compare_observations(actual, observation(), LIMITS)}
    assert (found["read"], found["text"]) == (Verdict.MATCH, Verdict.WRONG)
    apart = answer(observation(), text="no", reread=True, text_of_tokens=SAID.text)
    found = {one.what: one.verdict for one in compare_observations(apart, observation(), LIMITS)}
    assert (found["read"], found["text"]) == (Verdict.WRONG, Verdict.WRONG)


def test_equal_tokens_that_the_subjects_policy_does_not_end_with_are_wrong() -> None:
    tokens = compared(observation(), ends=False)["tokens"]
    assert (tokens.verdict, tokens.signs) == (Verdict.WRONG, frozenset((Symptom.NO_END,)))
    forced = (*along(STEPS[:2]), replace(along(STEPS)[2], token=9))
    found = [compared(observation(), forced=forced, ends=ends)["tokens"] for ends in (True, False)]
    assert found[0] == found[1], "another token is told first"
    assert found[0].verdict is Verdict.WRONG


def test_logits_that_are_not_finite_are_reported_in_the_place_of_an_error() -> None:
    spoilt = replace(along(STEPS)[2], token=NO_CHOICE, not_finite=NotFinite(2, 0, 129, (7,)))
    both = compared(observation(), forced=(*along(STEPS[:2]), spoilt))
    found, tokens = both["logits"], both["tokens"]
    assert tokens.verdict is Verdict.WRONG
    assert tokens.details[0].startswith("step 2: no choice, because its logits have NaN or infinity; the")
    assert (found.verdict, found.error) == (Verdict.WRONG, math.inf)
    assert found.measured == "step 2: 2 NaN of 129 values, the first at [7]; the reference is finite"
    assert Symptom.NOT_FINITE in found.signs


def flipped(at: int, apart: float) -> tuple[tuple[Step, ...], list[ForcedStep]]:
    """Return steps; in one the best two are so far apart, and the subject takes the second."""
    first, second = STEPS[at].best.ids[:2]
    close = Step(STEPS[at].token, Best((first, second), (8.0, 8.0 - apart)))
    steps = (*STEPS[:at], close, *STEPS[at + 1 :])
    forced = list(along(steps))
    forced[at] = replace(forced[at], token=second)
    return steps, forced


OTHER_TEXT = replace(SAID, text=SAID.text.replace("Minutes", "Seconds"))


def test_what_follows_a_wrong_token_or_none_is_wrong() -> None:
    gives: dict[str, Any] = {"text": OTHER_TEXT.text, "continued": OTHER_TEXT}
    steps, forced = flipped(1, 1.0)
    assert compared(observation(steps=steps), forced=tuple(forced), **gives)["text"].verdict is Verdict.WRONG
    assert compared(observation(), **gives)["text"].verdict is Verdict.WRONG
    tied, forced = flipped(0, 0.0)
    forced[2] = replace(forced[2], token=5)
    assert compared(observation(steps=tied), forced=tuple(forced), **gives)["text"].verdict is Verdict.WRONG


def test_a_reference_without_steps_compares_none() -> None:
    found = compared(observation(steps=()))
    assert found["tokens"].verdict is found["logits"].verdict is Verdict.NOT_COMPARED
    assert not found["tokens"].passes
    assert found["text"].verdict is Verdict.MATCH


# What several comparisons come to.

NO_CASE: Any = None
EXCHANGE = CaseRun(NO_CASE, answer(observation()), observation(), 0.0, 0.0)
FINE = Comparison("input_ids", Verdict.MATCH, "all 9", 0.0)
NONE = not_compared("boxes", Reason.NEITHER)
LEFT = not_compared("sam.page", Reason.NOT_OFFERED)
LACKING = not_compared("sam.page", Reason.NOT_IN_REFERENCE)


@pytest.mark.parametrize(
    ("comparisons", "passes", "verdict"),
    [
        ((FINE,), True, Verdict.MATCH),
        ((FINE, NONE, LEFT), True, Verdict.MATCH),
        ((FINE, replace(FINE, verdict=Verdict.DRIFT, error=1e-6)), True, Verdict.DRIFT),
        ((FINE, replace(FINE, verdict=Verdict.TIE_FLIP)), True, Verdict.TIE_FLIP),
        ((FINE, replace(FINE, verdict=Verdict.WRONG)), False, Verdict.WRONG),
        ((FINE, LACKING), False, Verdict.MATCH),
        ((NONE,), False, Verdict.NOT_COMPARED),
        ((LEFT,), False, Verdict.NOT_COMPARED),
        ((), False, Verdict.NOT_COMPARED),
    ],
)
def test_a_case_passes_where_all_that_is_offered_was_compared(
    comparisons: tuple[Comparison, ...], passes: bool, verdict: Verdict
) -> None:
    report = CaseReport(EXCHANGE, comparisons, LIMITS)
    assert (report.passes, report.verdict) == (passes, verdict)
    assert sum(report.counts.values()) == len(comparisons)
    assert report.worst_error == max((one.error or 0.0 for one in comparisons), default=0.0)
