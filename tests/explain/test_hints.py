"""Hints name the known mistakes that fit the symptoms, the likeliest first."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_dsocr.compare.case import Explanation
from pytest_dsocr.compare.divergence import Divergence, first_divergence
from pytest_dsocr.compare.verdict import AXES_OF_ONE, Comparison, Symptom, Verdict
from pytest_dsocr.contract import COMPARED
from pytest_dsocr.describe.description import Description
from pytest_dsocr.explain.catalogue import groups, mistakes
from pytest_dsocr.explain.catalogue.blocks import NOT_FINITE
from pytest_dsocr.explain.hints import (
    MOST,
    OF_AXES,
    OF_SHAPE,
    OF_STAGES,
    OF_TEXT_ALONE,
    Pick,
    agreed,
    hint,
    names_cause,
)
from pytest_dsocr.explain.mistake import Mistake
from pytest_dsocr.explain.sentence import beside
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from tests.faults.outcome import is_named

NARROW_ROWS = {*NOT_FINITE[Symptom.NOT_FINITE]}
"""Names that only some stages have."""
STAGES = ("projector", "vision_fusion", "prefill", "prefill_best", "logits", "tokens", "read", "text")


def wrong(what: str, *signs: Symptom, error: float | None = None) -> Comparison:
    return Comparison(what, Verdict.WRONG, "", error, signs=frozenset(signs))


def right(what: str) -> Comparison:
    return Comparison(what, Verdict.MATCH, "equal", 0.0)


def broken(*found: Comparison) -> Divergence:
    divergence = first_divergence(found)
    assert divergence is not None
    return divergence


SCENES: dict[str, tuple[Sequence[Comparison], str]] = {
    "prompt.no-bos": ([wrong("input_ids", Symptom.NO_BOS)], "no BOS in front of the prompt"),
    "grid": ([wrong("input_ids"), wrong("images_spatial_crop", Symptom.UP_TO_SIX)], "at most 6 crops"),
    "bars": ([wrong("images_ori", Symptom.BARS_ALONE)], "bars of the colour (128, 128, 128)"),
    "crops_alone": (
        [right("sam.page/0"), wrong("sam.crops/0", error=0.3)],
        "SAM's absolute positions resized bicubic, without antialias",
    ),
    "crops_alone_deeper": (
        [right("sam.crops/0"), right("sam.page/2"), wrong("sam.crops/2", error=0.3)],
        "SAM's tables of relative positions resized linearly with corners aligned",
    ),
    "neck": ([right("sam.page/0"), wrong("sam.page", error=0.5)], "the norms of SAM's neck over rows, not channels"),
    "small": (
        [wrong("clip.page/0", error=1e-3)],
        "an epsilon of 1e-06 in place of 1e-05 in the norms of CLIP's blocks",
    ),
    "not_finite": ([wrong("clip.page", Symptom.NOT_FINITE)], "all of CLIP in float16"),
    "shuffled": ([wrong("vision_fusion", Symptom.SHUFFLED)], "the whole page in front of the crops"),
    "shuffled_elsewhere": (
        [wrong("sam.page/0", Symptom.LATER_ROWS, error=0.5)],
        "the relative positions of rows and columns exchanged in SAM",
    ),
    "still": ([wrong("logits", Symptom.STANDS_STILL)], "the prompt's logits given at every step"),
    "blind": (
        [wrong("read"), wrong("text", Symptom.UNRELATED)],
        "a prompt read a second time without the image's features",
    ),
    "text_alone": (
        [wrong("text", Symptom.NUMBERS), right("boxes")],
        "tell them apart; what is seen: numbers; every box is right; offer",
    ),
    "inputs_right": (
        [*map(right, COMPARED), wrong("text"), wrong("boxes")],
        "every stage after the inputs, which are right: a text alone",
    ),
    "links": ([wrong("result.mmd")], "one span from the first mark to the last, taken out greedily"),
}


@pytest.mark.parametrize(("found", "words"), SCENES.values(), ids=SCENES)
def test_the_likeliest_mistakes_are_reported(found: Sequence[Comparison], words: str) -> None:
    message = hint(broken(*found), DEEPSEEK_OCR)
    assert words in message
    assert message.count(", or ") < MOST
    assert ("offer inputs and stages" in message) is (found[0].what == "text")


@pytest.mark.parametrize("what", ["sam.crops/1", "clip.page", "prefill/0"])
def test_a_shape_alone_names_no_mistake(what: str) -> None:
    page = what.replace("crops", "page")
    found = hint(
        broken(*[right(page)] * (page != what), wrong(what, Symptom.OTHER_SHAPE, error=math.inf)), DEEPSEEK_OCR
    )
    assert not [one.id for one in mistakes(DEEPSEEK_OCR).values() if one.words in found]
    assert "position" not in found


def test_of_a_shape_with_another_axis_of_size_1_the_axis_is_what_to_check() -> None:
    shape = wrong("sam.page", Symptom.OTHER_SHAPE, error=math.inf)
    found = [hint(broken(replace(shape, measured=said)), DEEPSEEK_OCR) for said in (AXES_OF_ONE, "shape [3]")]
    assert found == [OF_AXES, OF_SHAPE]


def test_hints_of_several_pages_agree_on_what_all_of_them_name() -> None:
    assert agreed(["no crops: a, or b, or c", "no crops: c, or a"]) == "no crops: a, or c"
    assert (agreed(["a, or b", "b"]), agreed(["a", "b"]), agreed(["a; b", "c; b"])) == ("b", "", "b")


def test_every_stage_and_sign_has_a_mistake_and_a_text_alone_names_none() -> None:
    for sign in Symptom:
        assert hint(broken(wrong("text", sign)), DEEPSEEK_OCR).replace(f"what is seen: {sign}; ", "") == hint(
            broken(wrong("text")), DEEPSEEK_OCR
        )
    for stage in (*OF_STAGES, *STAGES):
        assert hint(broken(wrong(stage)), DEEPSEEK_OCR) != f"what makes {stage}", stage
    known = {pick for one in mistakes(DEEPSEEK_OCR).values() for pick in (Pick(one.group), Pick(one.group, one.kind))}
    assert not {pick for row in OF_STAGES.values() for pick in row} - known
    for group in groups(DEEPSEEK_OCR).values():
        ends = {one.name for one in group}
        assert not {name for names in group.signs.values() for name in names} - ends - NARROW_ROWS, group.stage


def test_what_begins_within_the_tolerance_is_laid_to_where_it_begins() -> None:
    begins = Comparison("clip.page/0", Verdict.DRIFT, "", 5e-5)
    message = hint(broken(begins, wrong("clip.page/1", error=2e-4)), DEEPSEEK_OCR)
    assert message.startswith("it begins at clip.page/0")
    assert "CLIP" in message


@pytest.mark.parametrize("stage", ["input_ids", "images_ori", "sam.page/3", "clip.page", "prefill", "logits", "read"])
def test_what_a_search_refuted_is_not_named(stage: str) -> None:
    """A search names nothing that it left untried, however few, unless a symptom points at it."""
    broke, every = broken(wrong(stage, error=0.3)), mistakes(DEEPSEEK_OCR).values()

    def named(*left: Mistake, untried: int) -> set[str]:
        ids = frozenset(one.id for one in every) - {one.id for one in left}
        said = hint(broke, DEEPSEEK_OCR, Explanation("", stage, refuted=ids, untried=untried))
        assert f"what makes {stage}" in said
        assert (str(untried) in said and "--dsocr-explain" in said) is bool(untried)
        return {one.words for one in every if one.words in said and is_named(one.words, said)}

    before = hint(broke, DEEPSEEK_OCR)
    likely = [one for one in every if is_named(one.words, before)]
    assert likely
    for left in (likely[:2], [*every], []):
        assert not named(*left, untried=len(left))


def test_of_what_the_time_left_only_a_mistake_that_a_symptom_points_at_is_named() -> None:
    broke = broken(wrong("clip.page", Symptom.NOT_FINITE, error=0.3))
    left = Explanation("", "clip.page", untried=3)
    assert "all of CLIP in float16" in hint(broke, DEEPSEEK_OCR, left)
    assert "3 known mistakes" in hint(broke, DEEPSEEK_OCR, replace(left, refuted=frozenset(mistakes(DEEPSEEK_OCR))))
    assert hint(broke, DEEPSEEK_OCR, replace(left, words=("a", "b"))) == "a, or b"
    crops, every = broken(right("clip.page"), wrong("clip.crops", error=0.3)), frozenset(mistakes(DEEPSEEK_OCR))
    clue = "only the crops are wrong, and tables of positions are resized for crops"
    found = hint(crops, DEEPSEEK_OCR, Explanation("", "clip.crops", refuted=every))
    assert found == f"what makes clip.crops: {clue}"


def test_a_mistake_that_only_comes_nearer_is_not_named_beside_a_relation_that_says_how_values_differ() -> None:
    part = Explanation("in part: with squashed", "images_ori", ("squashed",), ("squashed",), frozenset({"other"}))
    found = beside(part, [Description("stretched", "the view is of the stretched page", 0.99)])
    assert found is not None
    assert (found.text, found.mistakes) == ("by none of 2 known mistakes tried at images_ori", ())
    assert found.refuted == {"other", "squashed"}
    assert beside(part, [Description("confined", "only 2 of 9 rows differ", 0.99)]) is part
    whole = replace(part, text="with squashed, the engine reproduces", is_whole=True)
    assert beside(whole, [Description("stretched", "the view is of the stretched page", 0.99)]) is whole


@pytest.mark.parametrize("searched", [None, Explanation("", "prefill")], ids=["guess", "search"])
def test_no_mistake_of_blocks_is_named_if_every_block_is_right(searched: Explanation | None) -> None:
    """Wrong logits whose first rows are right point at positions, windows and experts, which are of blocks."""
    found = [*(right(f"prefill/{k}") for k in range(2)), wrong("prefill", Symptom.LATER_ROWS, error=0.3)]
    said = hint(broken(*found), DEEPSEEK_OCR, searched)
    named = [one for one in groups(DEEPSEEK_OCR)["prefill"] if is_named(one.words, said)]
    assert {one.part for one in named} <= {"back"}
    assert bool(named) is (searched is None)


@pytest.mark.parametrize(
    ("before", "is_said"),
    [([right("prefill/0"), right("prefill/1")], True), ([right("prefill/0")], False), ([], False)],
)
def test_a_stage_is_right_up_to_a_block_only_if_the_one_before_was_compared(
    before: Sequence[Comparison], is_said: bool
) -> None:
    said = hint(broken(*before, wrong("prefill/2", error=0.3)), DEEPSEEK_OCR)
    assert ("prefill is right up to block 2" in said) == is_said


@pytest.mark.parametrize(
    ("effect", "said", "after_inputs"),
    [
        ("in-pixels", "how boxes are written", "how boxes are written"),
        ("scaled", "laid into its view, or how boxes are written", "how boxes are written"),
        ("boxes-moved", "laid into its view, or how boxes are written", "how boxes are written"),
        ("ends", "what ends an output, or the steps before it", "what ends an output, or the steps before it"),
        ("goes-on", "what ends an output", "what ends an output"),
        ("prefixed", "what is cut off a text, or put in front of it", "what is cut off a text"),
        ("anatomy", OF_TEXT_ALONE, OF_TEXT_ALONE),
        ("edited", OF_TEXT_ALONE, OF_TEXT_ALONE),
    ],
)
def test_a_described_effect_on_a_text_names_only_the_stages_that_can_cause_it(
    effect: str, said: str, after_inputs: str
) -> None:
    text, inputs = wrong("text", Symptom.NUMBERS), [*map(right, COMPARED)]
    for before, expected in (([], said), (inputs, after_inputs)):
        found = hint(broken(*before, text), DEEPSEEK_OCR, effect=effect)
        assert expected in found
        assert (OF_TEXT_ALONE in found) is (expected == OF_TEXT_ALONE)
        assert names_cause(found) is (expected != OF_TEXT_ALONE)
    assert "view" not in hint(broken(*inputs, text), DEEPSEEK_OCR, effect=effect)
