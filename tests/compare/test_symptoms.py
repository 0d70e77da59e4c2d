"""Every symptom is told for a scene that shows it, and stands for mistakes that are known by number."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_dsocr.compare.divergence import first_divergence
from pytest_dsocr.compare.signs import Reason, Sign
from pytest_dsocr.compare.symptoms import SYMPTOMS
from pytest_dsocr.compare.symptoms.scene import Scene, always
from pytest_dsocr.compare.verdict import Comparison, Verdict, not_compared

BUGS = """
    ATK-01 ATK-02 ATK-03 ATK-05 CLP-01 CLP-02 CLP-03 CLP-04 CLP-05 CLP-07 CLP-08 DEC-01 DEC-02 DEC-04 DTK-01 DTK-02
    DTK-03 DTK-05 DTP-01 DTP-04 DTP-05 DTP-07 DTP-08 ENV-05 EOS-04 EOS-05 FUS-01 FUS-02 FUS-04 FUS-06 FUS-07 GRD-01
    GRD-02 GRD-06 GRD-08 GRD-09 GRD-10 GRD-11 GRD-12 GRD-13 IMG-01 IMG-03 IMG-04 IMG-05 IMG-07 IMG-08 IMG-09 IMG-11
    KVC-03 KVC-04 KVC-05 KVC-06 MOE-01 MOE-02 MOE-03 NGR-01 NGR-02 NGR-06 NGR-07 PAR-02 PAR-03 PAR-05 PAR-06 PAR-07
    PAR-08 PAR-09 PAR-12 POS-01 POS-04 POS-08 POS-09 POS-10 PRJ-02 PRM-01 PRM-02 PRM-04 PRM-06 PRM-08 PRM-10 PRM-11
    RND-01 RND-02 RND-04 RND-06 RND-08 SAM-01 SAM-02 SAM-03 SAM-04 SAM-05 SAM-08 SAM-09 SAM-11 SAM-12 SAM-13 SAM-14
    SAM-15 SCH-01 SCH-02 SCH-04 SCH-05 SCH-07 SCH-08 SCH-10 SCT-03 SCT-04
"""
"""Those that a first divergence can show; others raise, cost time, or want two requests at once."""


def wrong(what: str, *signs: Sign, error: float | None = None) -> Comparison:
    return Comparison(what, Verdict.WRONG, "", error, signs=frozenset(signs))


def right(what: str) -> Comparison:
    return Comparison(what, Verdict.DRIFT, "a little")


def large(what: str, *signs: Sign) -> Comparison:
    return wrong(what, *signs, error=0.5)


def small(what: str) -> Comparison:
    return wrong(what, error=0.01)


def misshapen(what: str) -> Comparison:
    return wrong(what, Sign.OTHER_SHAPE)


IDS = wrong("input_ids")
GRID, MASK = "images_spatial_crop", "images_seq_mask"
TEXT = right("text")

SCENES: Sequence[tuple[str, Sequence[Comparison]]] = [
    ("the crop grid's order", [IDS, wrong(MASK), wrong(GRID, Sign.GRID_EXCHANGED)]),
    ("when a page is cropped: as soon as", [IDS, wrong(MASK), wrong(GRID, Sign.NO_CROPS)]),
    ("when a page is cropped: not where", [IDS, wrong(MASK), wrong(GRID, Sign.CROPS)]),
    ("the crop grid's limit", [IDS, wrong(MASK), wrong(GRID, Sign.UP_TO_SIX)]),
    ("the crop grid: 2 to 9", [IDS, wrong(MASK), wrong(GRID)]),
    ("that BOS, id 0", [wrong("input_ids", Sign.NO_BOS), wrong(MASK)]),
    ("that BOS is put in front once", [wrong("input_ids", Sign.TWO_BOS), wrong(MASK)]),
    ("where the image stands", [wrong("input_ids", Sign.IDS_REORDERED), wrong(MASK)]),
    ("the prompt's text: this request's", [wrong("input_ids", Sign.BEHIND_IMAGE), wrong(MASK)]),
    ("the image token of the separator", [IDS, wrong(MASK, Sign.ONE_TOKEN_FEWER)]),
    ("how many image tokens there are", [IDS, wrong(MASK, Sign.OTHER_COUNT)]),
    ("how many image tokens there are", [wrong("input_ids", Sign.BEHIND_IMAGE), wrong(MASK, Sign.OTHER_COUNT)]),
    ("how the ids are put together", [IDS, wrong(MASK)]),
    ("the prompt's text and the vocabulary", [IDS, right(MASK)]),
    ("that the mask gets a False", [right("input_ids"), wrong(MASK, Sign.MASK_TOO_EARLY)]),
    ("that the mask is True on", [right("input_ids"), wrong(MASK)]),
    ("that the grid is columns", [wrong(GRID)]),
    ("how many crops there are", [misshapen("images_crop"), wrong("images_ori")]),
    ("the crops' order", [wrong("images_crop", Sign.VIEWS_REORDERED), right("images_ori")]),
    ("the channels' order", [wrong("images_crop", Sign.CHANNELS_REORDERED), wrong("images_ori")]),
    ("that crops are not cast", [wrong("images_crop", Sign.WHOLE_LEVELS), right("images_ori")]),
    ("how levels become pixels", [wrong("images_crop", Sign.ROUNDED), wrong("images_ori", Sign.ROUNDED)]),
    ("the filter", [wrong("images_crop"), wrong("images_ori")]),
    ("that the page is stretched", [wrong("images_crop"), right("images_ori")]),
    ("the bars beside the page", [right("images_crop"), wrong("images_ori", Sign.BARS_ALONE)]),
    ("where the page stands", [right("images_crop"), wrong("images_ori", Sign.OTHER_BARS)]),
    ("how levels of the whole view", [right("images_crop"), wrong("images_ori", Sign.ROUNDED)]),
    ("the whole view", [right("images_crop"), wrong("images_ori")]),
    ("that ids and grid are int64", [wrong("dtypes")]),
    ("what of SAM is not finite", [large("sam.crops", Sign.NOT_FINITE), right("sam.page")]),
    ("what of SAM is not finite", [large("sam.page/0", Sign.NOT_FINITE)]),
    ("what of CLIP is not finite", [right("sam.page"), large("clip.page/1", Sign.NOT_FINITE)]),
    ("what of the projector is not finite", [large("projector.page", Sign.NOT_FINITE)]),
    ("what the fusion was never filled with", [large("vision_fusion", Sign.NOT_FINITE)]),
    ("how SAM's absolute positions", [small("sam.crops/0"), right("sam.page/0"), right("sam.page")]),
    ("how the relative positions of block 2,", [right("sam.crops/1"), small("sam.crops/2"), right("sam.page/2")]),
    ("how SAM's position tables", [large("sam.crops/3"), right("sam.page/3")]),
    *(
        (f"how the relative positions of block {k},", [large(f"sam.crops/{k}"), right(f"sam.page/{k}")])
        for k in (5, 8, 11)
    ),
    ("how SAM's position tables", [large("sam.crops"), right("sam.page")]),
    ("SAM's neck by a little", [right("sam.page/0"), right("sam.page/1"), small("sam.page")]),
    ("SAM behind its last block", [right("sam.page/0"), right("sam.page/1"), large("sam.page")]),
    ("SAM by a little", [small("sam.page/0"), small("sam.page")]),
    ("SAM's patches and its block 0", [large("sam.crops/0"), large("sam.page/0")]),
    ("SAM's block 3, for those in front", [right("sam.page/2"), small("sam.page/3"), large("sam.page")]),
    ("SAM's block 3, for those in front", [right("sam.page/2"), large("sam.page/3"), large("sam.page")]),
    ("SAM's relative positions", [large("sam.page")]),
    ("SAM's relative positions", [large("sam.crops"), large("sam.page")]),
    ("how CLIP's 16 x 16", [large("clip.crops"), right("clip.page")]),
    ("how CLIP's 16 x 16", [large("clip.crops/0"), right("clip.page/0"), right("clip.page")]),
    ("CLIP's end", [right("clip.page/0"), large("clip.page")]),
    ("CLIP by a little", [small("clip.page/0")]),
    ("CLIP's block 3,", [right("clip.page/2"), small("clip.page/3")]),
    ("CLIP's input", [large("clip.page/0"), large("clip.page")]),
    ("CLIP: SAM's features", [large("clip.page")]),
    ("that CLIP's features stand", [large("projector.page")]),
    ("the number of newlines", [misshapen("vision_fusion")]),
    ("the order: the crops", [large("vision_fusion", Sign.SHUFFLED)]),
    ("the order (crops", [large("vision_fusion")]),
    ("what was never filled", [large("prefill/0", Sign.NOT_FINITE)]),
    ("what was never filled", [large("prefill", Sign.NOT_FINITE)]),
    ("what layer 0 does with later", [right("vision_fusion"), large("prefill/0", Sign.LATER_ROWS), large("prefill")]),
    ("what the decoder is given", [right("vision_fusion"), large("prefill/0"), large("prefill")]),
    ("the decoder's layer 4,", [right("prefill/3"), small("prefill/4"), large("prefill")]),
    ("the decoder behind its last layer", [right("prefill/3"), large("prefill")]),
    ("the decoder by a little", [right("vision_fusion"), small("prefill")]),
    ("the decoder, for vision", [right("vision_fusion"), large("prefill")]),
    ("whatever comes in front of the logits", [not_compared("vision_fusion", Reason.NOT_OFFERED), large("prefill")]),
    ("the language model's head", [right("prefill"), large("prefill_best")]),
    ("what a step reads that was never", [large("logits", Sign.NOT_FINITE)]),
    ("that each step's own logits", [large("logits", Sign.FROM_FIRST_STEP, Sign.STANDS_STILL)]),
    ("the first choice's logits", [large("logits", Sign.FROM_PREFILL)]),
    ("the steps by a little", [wrong("logits", Sign.FROM_FIRST_STEP, error=0.01)]),
    ("the first decode step", [large("logits", Sign.FROM_FIRST_STEP)]),
    ("the cache, for the first steps", [large("logits")]),
    ("the rule for n-grams, for the logits", [wrong("tokens", Sign.SAID_FORBIDDEN)]),
    ("what keeps it from its best", [wrong("tokens", Sign.NOT_ITS_BEST)]),
    ("where decoding ends, for every token", [wrong("tokens", Sign.NO_END)]),
    ("the choice", [wrong("tokens")]),
    ("read's own prefill", [wrong("read"), wrong("text", Sign.REPETITION, Sign.UNRELATED)]),
    ("the end of what read gives back", [wrong("read"), wrong("text", Sign.GOES_ON)]),
    ("read's own loop: that each step's", [wrong("read"), wrong("text", Sign.REPETITION)]),
    ("read's own loop: that the token", [wrong("read"), wrong("text", Sign.LOST_START)]),
    ("where read's own loop ends", [wrong("read"), wrong("text", Sign.TRUNCATION)]),
    ("what read gives back", [wrong("read"), wrong("text", Sign.EMPTINESS)]),
    ("that read goes through", [wrong("read"), wrong("text")]),
    ("that special tokens are kept", [right("tokens"), wrong("text", Sign.MARKUP)]),
    ("that bytes are turned", [wrong("text", Sign.BYTE_MARKS)]),
    ("that all tokens are decoded", [wrong("text", Sign.BROKEN_CHARACTERS)]),
    ("that spaces are not tidied", [wrong("text", Sign.SPACES)]),
    ("that coordinates are left", [wrong("text", Sign.NUMBERS)]),
    ("the end of the text", [right("tokens"), wrong("text", Sign.GOES_ON)]),
    ("how tokens become text", [right("tokens"), wrong("text", Sign.TRUNCATION)]),
    ("the prompt: BOS", [not_compared("tokens", Reason.NOT_OFFERED), wrong("text", Sign.EMPTINESS)]),
    ("that the page is seen at all", [wrong("text", Sign.REPETITION, Sign.UNRELATED)]),
    ("the rule for n-grams (none", [wrong("text", Sign.REPETITION)]),
    ("that the token chosen", [wrong("text", Sign.LOST_START)]),
    ("where decoding ends", [wrong("text", Sign.TRUNCATION)]),
    ("that what is returned", [wrong("text", Sign.ECHO)]),
    ("whatever comes in front of the text", [not_compared("tokens", Reason.NOT_OFFERED), wrong("text")]),
    ("how spans are found", [TEXT, wrong("spans")]),
    ("how coordinates are read", [TEXT, wrong("boxes")]),
    ("what is taken out of the text", [TEXT, wrong("result.mmd")]),
    ("which files are written", [TEXT, wrong("artefacts")]),
    ("what makes something", [wrong("something")]),
]


@pytest.mark.parametrize(("cause", "found"), SCENES)
def test_a_scene_is_told_by_its_cause(cause: str, found: Sequence[Comparison]) -> None:
    told = first_divergence([right("input_ids"), *found] if found[0].what != "input_ids" else found)
    assert told is not None
    assert told.cause.startswith(cause)
    assert "{" not in told.cause


def test_there_is_a_scene_for_every_symptom() -> None:
    shown = Counter(symptom.cause for symptom in SYMPTOMS)
    assert set(shown.values()) == {1}
    told = {cause for cause, _ in SCENES}
    told |= {re.sub(r"(block|layer) \d", r"\1 ?", cause) for cause in told}
    for symptom in SYMPTOMS:
        start = symptom.cause.replace("{depth}", "?")
        assert any(start.startswith(one) for one in told), start


def test_every_bug_that_a_divergence_can_show_has_a_symptom() -> None:
    assert {bug for symptom in SYMPTOMS for bug in symptom.bugs} == set(BUGS.split())
    assert all(list(symptom.bugs) == sorted(set(symptom.bugs)) for symptom in SYMPTOMS)


def test_every_general_symptom_stands_behind_the_particular_ones_of_its_stage() -> None:
    general: set[str] = set()
    for symptom in SYMPTOMS:
        assert symptom.at not in general, f"{symptom.cause} is never told"
        if symptom.shows is always:
            general.add(symptom.at)
    assert general >= {symptom.at for symptom in SYMPTOMS}


def test_a_scene_looks_at_signs_and_never_into_sentences() -> None:
    said = Comparison("text", Verdict.WRONG, "truncation; parts at 7", None, ("truncation: it breaks off",))
    assert not Scene(said, {}).has(Sign.TRUNCATION)
    scene = Scene(replace(said, signs=frozenset((Sign.ECHO,))), {"boxes": wrong("boxes", Sign.NUMBERS)})
    assert scene.has(Sign.ECHO)
    assert not scene.has(Sign.NUMBERS)
    assert scene.has(Sign.NUMBERS, "boxes")
    assert not scene.has(Sign.ECHO, "boxes")
    assert not scene.has(Sign.ECHO, "spans")
