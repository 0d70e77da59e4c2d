"""Hints for failures that no known mistake explains: up to three mistakes of the stage that fit the symptoms.

The module imports torch only once a case has failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from pytest_dsocr.base.words import count
from pytest_dsocr.compare.divergence import Divergence, FailureContext
from pytest_dsocr.compare.verdict import AXES_OF_ONE, Comparison, Symptom
from pytest_dsocr.contract import COMPARED
from pytest_dsocr.models import STAGES
from pytest_dsocr.models.spec import ModelSpec

if TYPE_CHECKING:
    from pytest_dsocr.compare.case import Explanation
    from pytest_dsocr.explain.mistake import Mistake

MOST = 3
TENSORS = tuple(stage.name for stage in STAGES if stage.seams)
"""Stages that hand on a tensor."""
OF_TENSORS = (Symptom.NOT_FINITE, Symptom.SHUFFLED, Symptom.LATER_ROWS)


class Pick(NamedTuple):
    """Mistakes of a group, or only those of one kind."""

    group: str
    kind: str = ""


OF_STAGES: Mapping[str, tuple[Pick, ...]] = {
    "input_ids": (Pick("prompt"),),
    "images_seq_mask": (Pick("prompt", "mask"), Pick("prompt", "no-mask"), Pick("prompt", "counts")),
    "images_spatial_crop": (Pick("pixels", "grid"),),
    "images_crop": tuple(Pick("pixels", kind) for kind in ("crops", "levels", "resize", "opened")),
    "images_ori": tuple(Pick("pixels", kind) for kind in ("resize", "levels", "opened", "bars")),
    "prefill_best": tuple(Pick("prefill", kind) for kind in ("head", "last-norm", "no-last-norm", "logits")),
    "logits": tuple(Pick("steps", kind) for kind in ("positions", "cache", "fed", "keys", "")),
    "read": (Pick("read"), Pick("text")),
    "spans": (Pick("written", "greedy"),),
    "boxes": (Pick("files", "first-box"), Pick("text")),
    "result.mmd": (Pick("written"),),
    "artefacts": tuple(Pick("files", kind) for kind in ("no-figures", "rounded", "over-1000", "sides-exchanged")),
}
"""Mistakes of a stage that no group is named after."""
FLAG = "--dsocr-explain"
OF_TEXT_ALONE = "a text alone does not tell them apart"
WRITTEN, ENDED_BY, REST = "how boxes are written", "what ends an output", "as all else of the text is right"
OF_OUTPUT: Mapping[str, str] = {
    **dict.fromkeys(
        ("in-pixels", "clamped", "axes-exchanged", "corners-exchanged", "as-sizes", "as-centres"), f"{WRITTEN}, {REST}"
    ),
    "goes-on": f"{ENDED_BY}, as the text is right up to the reference's end",
    **dict.fromkeys(("begins-late", "prefixed"), f"what is cut off a text, or put in front of it, {REST}"),
}
"""Possible causes of an effect on a text, by the kind of its description: after the tokens, or at the end."""
OF_INPUTS: Mapping[str, tuple[str, str]] = dict.fromkeys(
    ("boxes-moved", "scaled", "mirrored-across", "mirrored-down"),
    (f"how the page is laid into its view, or {WRITTEN}, {REST}", f"{WRITTEN}, {REST}"),
)
"""Possible causes of effects that pixels can have too, and those that are left after right inputs."""
OF_STEPS: Mapping[str, str] = {"ends": f"{ENDED_BY}, or the steps before it, as the text is right up to there"}
"""Possible causes of effects that decode steps can have too."""
UNTRIED, ENDED = "not tried", " before the time ended"
DEEPER = "offer {}stages ({}) to see which breaks first"
DEEPER_INPUTS = "offer inputs (level L1) to see which"
OR = ", or "
OF_AXES = "the axes of size 1 of this tensor: a batch, or a view, that is too many or missing"
OF_SHAPE = "the numbers of views, tokens and channels that reach this module, as a shape alone names no mistake"


def hint(
    divergence: Divergence,
    family: ModelSpec,
    explanation: Explanation | None = None,
    *,
    is_described: bool = False,
    effect: str = "",
) -> str:
    """Return the things to check first, in words: no mistake that a search has refuted.

    If a search found mistakes and proved none, these are named. Otherwise a mistake that it did not compute is named
    only if a measured symptom points at it. With a description there is no such guess; with a text's cause no search.
    ``effect`` is the kind of a description that explains a text and no cause of it.
    """
    scene = divergence.scene
    if Symptom.OTHER_SHAPE in scene.first.signs and scene.first.stage in TENSORS:
        return OF_AXES if AXES_OF_ONE in scene.first.measured else OF_SHAPE
    found = explanation.words[:MOST] if explanation else ()
    if scene.first.stage == "text" and not scene.right("tokens"):
        return "" if found or is_described else _of_effect(scene, effect) or _of_text_alone(scene)
    if is_described and not found:
        return ""
    left = () if found else _likely(scene, family, explanation)
    checked = OR.join(dict.fromkeys((*found, *(one.words for one in left))))
    untried = explanation.untried if explanation else 0
    is_tried = f"{UNTRIED}{ENDED * bool(untried)}" if explanation and left else ""
    seen = "; ".join(filter(None, (_clue(scene), is_tried)))
    parts = (seen, checked) if checked else (f"what makes {scene.first.what}{_not_tried(untried)}", seen)
    return f"{divergence.preface}{': '.join(filter(None, parts))}"


def agreed(hints: Sequence[str]) -> str:
    """Return the parts of the first hint that all other hints have too."""
    between = OR if OR in hints[0] else "; "
    first, *others = ([(one.rpartition(": ")[2], one) for one in said.split(between)] for said in hints)
    return between.join(said for key, said in first if all(key in dict(other) for other in others))


def _of_effect(scene: FailureContext, effect: str) -> str:
    """Return only what can cause a described effect on a text; empty if any stage can."""
    if effect in OF_INPUTS:
        unknown, after_inputs = OF_INPUTS[effect]
        return after_inputs if scene.right(*COMPARED) else f"{unknown}; {DEEPER_INPUTS}"
    if effect in OF_STEPS:
        return f"{OF_STEPS[effect]}; {DEEPER.format('', 'level L2')}"
    return OF_OUTPUT.get(effect, "")


def names_cause(said: str) -> bool:
    """Return whether a hint names a likely cause, and not only where a case breaks."""
    return bool(said) and not (OF_TEXT_ALONE in said or said in (OF_AXES, OF_SHAPE) or "what makes " in said)


def hint_of_rest(divergence: Divergence, explanation: Explanation | None) -> str:
    """Return the things to check for what a change of the whole text leaves, whose symptoms are not known."""
    is_named = explanation is not None and explanation.words
    return "" if is_named else f"for what is left, {_of_text_alone(divergence.scene, is_rest=True)}"


def _of_text_alone(scene: FailureContext, *, is_rest: bool = False) -> str:
    """Return the symptoms of a wrong text. Any stage may be wrong, so no mistake is named."""
    of_inputs = scene.right(*COMPARED)
    stages = f"every stage{of_inputs * ' after the inputs, which are right'}: {OF_TEXT_ALONE}"
    signs = ", ".join(sorted(scene.first.signs))
    is_lacking = scene.wrong("boxes") and Symptom.BOXES_MISSING in scene.found["boxes"].signs
    wrong = Symptom.BOXES_MISSING if is_lacking else "boxes differ" if scene.wrong("boxes") else ""
    boxes = "every box is right" if scene.right("boxes") else wrong
    deeper = DEEPER.format(*(("", "level L2") if of_inputs else ("inputs and ", "levels L1 and L2")))
    seen = [] if is_rest else [signs and f"what is seen: {signs}", boxes]
    return "; ".join(filter(None, (stages, *seen, deeper)))


def _clue(scene: FailureContext) -> str:
    """Return a symptom that the comparison itself does not show."""
    if scene.crops_alone:
        return "only the crops are wrong, and tables of positions are resized for crops"
    if scene.blocks_right:
        return f"every block of {scene.first.stage} is right"
    before = str(scene.first.tensor._replace(block=scene.depth - 1)) if scene.depth else ""
    return f"{scene.first.stage} is right up to block {scene.depth}" if before and scene.right(before) else ""


def _not_tried(untried: int) -> str:
    return f"; {count(untried, 'known mistake')} {UNTRIED}{ENDED}, {FLAG}=SECONDS allows more" if untried else ""


def _likely(scene: FailureContext, family: ModelSpec, explanation: Explanation | None) -> Sequence[Mistake]:
    """Return the mistakes that fit best among those that were not tried.

    After a search, these are only mistakes that a symptom points at.
    """
    tried = explanation.refuted.union(explanation.mistakes) if explanation else frozenset[str]()
    stage, by = scene.first.stage, partial(_pointed, scene.first.stage, family)
    pointed, every = [*by(scene.first)], [*_of_stage(stage, family)]
    if stage in ("input_ids", "images_seq_mask") and scene.wrong("images_spatial_crop"):
        pointed = [*by(scene.found["images_spatial_crop"])] or [*_ranked(Pick("pixels", "grid"), family)][:1]
    elif stage == "input_ids":
        pointed = [*by(scene.found.get("images_seq_mask")), *pointed]
    elif stage == "read":
        pointed += by(scene.found.get("text"))
    pointed, every = ([one for one in of if one.id not in tried] for of in (pointed, every))
    pointed = [one for one in pointed if one.group != stage or _is_there(one, scene)]
    if explanation and not pointed:
        return []
    likely = pointed or [one for one in every if _fits(one, scene)] or every
    return [*{one.id: one for one in likely}.values()][:MOST]


def _pointed(stage: str, family: ModelSpec, compared: Comparison | None) -> Iterator[Mistake]:
    """Yield the mistakes that a comparison's symptoms suggest; for a tensor, only those of its own stage."""
    for sign in compared.signs if compared else ():
        is_of_tensors = stage in TENSORS or sign in OF_TENSORS
        found = [one for one in _ranked(Pick(stage) if is_of_tensors else None, family) if sign in one.signs]
        yield from sorted(found, key=lambda one: one.signs[sign])


def _of_stage(stage: str, family: ModelSpec) -> Iterator[Mistake]:
    """Yield the mistakes of a stage, its kinds by turns, each with the likeliest first."""
    for alike in zip_longest(*(_ranked(pick, family) for pick in OF_STAGES.get(stage, (Pick(stage),)))):
        yield from filter(None, alike)


def _fits(one: Mistake, scene: FailureContext) -> bool:
    """Return whether a mistake fits the right blocks, the views and the size of the error."""
    is_as_large = scene.crops_alone or scene.first.error is None or one.is_small is scene.small
    return is_as_large and _is_there(one, scene)


def _is_there(one: Mistake, scene: FailureContext) -> bool:
    """Return whether a mistake is in the views and the blocks that are wrong."""
    if scene.crops_alone:
        return one.needs_crops and (not scene.depth or one.part == "block")
    if one.needs_crops and ".page" in scene.first.what:
        return False
    if scene.blocks_right:
        return one.part == "back"
    if scene.depth is not None:
        return one.part in (("block", "wide") if scene.depth else ("front", "block", "wide"))
    return True


@cache
def _ranked(pick: Pick | None, family: ModelSpec) -> Sequence[Mistake]:
    """Return the picked mistakes, or all: first the ones seen in ports, then the ones that this project thought of."""
    from pytest_dsocr.explain.catalogue import mistakes, seen

    known = mistakes(family)
    every = dict.fromkeys([*(one.mistake for one in seen(family)), *known])
    if pick is None:
        return [known[name] for name in every]
    return [known[name] for name in every if known[name].group == pick.group and pick.kind in ("", known[name].kind)]
