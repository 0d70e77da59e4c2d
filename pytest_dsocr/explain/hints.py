"""What to check where nothing explains a failure: the known mistakes of a stage that fit what is seen, three at most.

Nothing here imports torch before a case has failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import zip_longest

from pytest_dsocr.compare.divergence import Divergence, Scene
from pytest_dsocr.compare.signs import Sign
from pytest_dsocr.compare.verdict import Comparison

MOST = 3
TENSORS = ("sam", "clip", "projector", "vision_fusion", "prefill")
OF_STAGES: Mapping[str, tuple[str, ...]] = {
    "input_ids": ("prompt.",),
    "images_seq_mask": ("prompt.mask", "prompt.no-mask", "prompt.counts-"),
    "images_spatial_crop": ("pixels.grid-",),
    "images_crop": ("pixels.crops-", "pixels.levels-", "pixels.resize-", "pixels.opened-"),
    "images_ori": ("pixels.resize-", "pixels.levels-", "pixels.opened-", "pixels.bars-"),
    "prefill_best": ("prefill.head-", "prefill.last-norm", "prefill.no-last-norm", "prefill.logits-"),
    "logits": ("steps.positions-", "steps.cache-", "steps.fed-", "steps.keys-", "steps."),
    "read": ("read.", "text."),
    "spans": ("written.greedy",),
    "boxes": ("files.first-box", "text."),
    "result.mmd": ("written.",),
    "artefacts": ("files.",),
}
"""How the ids of a stage's mistakes begin, where that is not with the stage's name."""
SIGNS: Mapping[Sign, tuple[str, ...]] = {
    Sign.NO_BOS: ("prompt.no-bos",),
    Sign.TWO_BOS: ("prompt.two-bos",),
    Sign.IDS_REORDERED: ("prompt.image-last", "prompt.text-first"),
    Sign.BEHIND_IMAGE: ("prompt.trailing-space", "prompt.added", "prompt.prompt-free"),
    Sign.MASK_TOO_EARLY: ("prompt.mask-early",),
    Sign.ONE_TOKEN_FEWER: ("prompt.one-fewer", "prompt.counts-no-separator"),
    Sign.OTHER_COUNT: ("prompt.counts-each-crop", "prompt.counts-exchanged", "prompt.counts-base-page"),
    Sign.GRID_EXCHANGED: ("pixels.grid-exchanged",),
    Sign.NO_CROPS: ("pixels.grid-never", "pixels.grid-both-sides", "pixels.grid-limit-1024"),
    Sign.CROPS: ("pixels.grid-limit-639", "pixels.grid-always"),
    Sign.UP_TO_SIX: ("pixels.grid-six",),
    Sign.VIEWS_REORDERED: ("pixels.crops-by-column", "pixels.crops-backwards"),
    Sign.CHANNELS_REORDERED: ("pixels.opened-bgr", "pixels.levels-bgr"),
    Sign.WHOLE_LEVELS: ("pixels.levels-cut",),
    Sign.ROUNDED: ("pixels.levels-float32", "pixels.levels-by-256", "pixels.levels-in-bfloat16"),
    Sign.BARS_ALONE: ("pixels.bars-128", "pixels.bars-white", "pixels.bars-black"),
    Sign.OTHER_BARS: ("pixels.squashed", "pixels.bars-behind", "pixels.size-down"),
    Sign.NOT_FINITE: ("{}.wholly-float16", "{}.never-filled", "{}.float16", "{}.runs-float16"),
    Sign.SHUFFLED: (
        *("vision_fusion.page-first", "vision_fusion.crops-in-turn", "vision_fusion.newlines-in-front"),
        *("vision_fusion.separator-between", "{}.features-turned"),
    ),
    Sign.LATER_ROWS: (
        "prefill.positions-bfloat16",
        "prefill.window-",
        "prefill.experts-room-100",
        "prefill.positions-",
    ),
    Sign.FROM_PREFILL: ("prefill.logits-last-but-one", "steps.logits-late"),
    Sign.FROM_FIRST_STEP: ("steps.positions-one-low", "steps.cache-own-hidden", "steps.prompt-again"),
    Sign.STANDS_STILL: ("steps.logits-still",),
    Sign.SAID_FORBIDDEN: ("tokens.size-0", "tokens.size-35", "read.window-90"),
    Sign.NOT_ITS_BEST: ("read.draw", "tokens.size-3", "read.penalty-said-1.2"),
    Sign.NO_END: ("tokens.eos-2",),
    Sign.EMPTINESS: ("text.nothing", "prompt.no-bos", "read.blind"),
    Sign.TRUNCATION: ("read.paragraph", "read.ceiling-1024", "read.size-3"),
    Sign.GOES_ON: ("read.no-end", "text.eos-kept"),
    Sign.LOST_START: ("text.first-lost",),
    Sign.REPETITION: ("read.no-rule", "read.window-90", "steps.logits-still"),
    Sign.BYTE_MARKS: ("text.marks",),
    Sign.BROKEN_CHARACTERS: ("text.one-by-one",),
    Sign.MARKUP: ("text.no-special",),
    Sign.SPACES: ("text.spaces-tidied", "text.one-newline", "text.not-stripped"),
    Sign.NUMBERS: ("text.doubled", "text.thousand"),
    Sign.UNRELATED: ("read.blind", "files.logits-kept", "prefill.features-text-only"),
}
"""What a sign points at, by how ids begin, the likeliest first; in braces the stage's name."""
SMALL = re.compile(r"16|8|tf32|1e-|0\.001|activation-(?!silu|relu|none)|epsilon|unbiased|outside|softmax-one")
"""Ids of mistakes that change numbers by about as much as rounding does."""
RESIZED = re.compile(
    r"^(sam|clip)\.(positions-(?!turned|flipped|mirrored|missing|twice|half)"
    r"|relative-(?!missing|exchanged|no-|backwards|rows|of-)|class-position-last)"
)
"""Ids of mistakes that show where a table of positions is resized, which it is for crops alone."""
UNSEEN = "whatever comes in front of the text, of which nothing is known"
DEEPER = "; offer inputs and stages (levels L1 and L2) to have the first that breaks named"


def hint(divergence: Divergence) -> str:
    """Say what to check first, in words."""
    scene = divergence.scene
    found = [words for _, words in _likely(scene)]
    checked = ", or ".join(dict.fromkeys(found)) or (
        UNSEEN if _is_text_alone(scene) else f"what makes {scene.first.what}"
    )
    seen = _seen(scene)
    whole = f"{seen}: {checked}" if seen else checked
    if _is_text_alone(scene):
        whole += DEEPER
    return f"{divergence.preface}{whole}"


def _is_text_alone(scene: Scene) -> bool:
    return scene.first.stage == "text" and not scene.right("tokens")


def _seen(scene: Scene) -> str:
    """Say what tells the mistakes apart, beside what the comparison says."""
    if scene.crops_alone:
        return "the crops alone are wrong, whose tables of positions are resized"
    if scene.blocks_right:
        return f"every block of {scene.first.stage} is right"
    return f"{scene.first.stage} is right up to block {scene.depth}" if scene.depth else ""


def _likely(scene: Scene) -> Sequence[tuple[str, str]]:
    """Return the ids and words of the likeliest mistakes."""
    by_id = _words()
    stage = scene.first.stage
    pointed = [*_pointed(scene.first, stage)]
    if stage in ("input_ids", "images_seq_mask") and scene.wrong("images_spatial_crop"):
        pointed = [*_pointed(scene.found["images_spatial_crop"], stage)] or ["pixels.grid-"]
    elif stage == "input_ids":
        pointed = [*_pointed(scene.found.get("images_seq_mask"), stage), *pointed]
    elif stage == "read":
        pointed += _pointed(scene.found.get("text"), stage)
    if _is_text_alone(scene) and not pointed:
        return []  # a word that is read wrongly may come from any stage in front
    ids = [*_beginning(pointed)] or [one for one in _of_stage(stage) if _fits(one, scene)] or [*_of_stage(stage)]
    return [(one, by_id[one]) for one in dict.fromkeys(ids)][:MOST]


def _pointed(compared: Comparison | None, stage: str) -> Iterator[str]:
    """Yield what the signs of a comparison point at; of a tensor, in its own stage alone."""
    for sign in compared.signs if compared else ():
        begins = [begin.format(stage) for begin in SIGNS.get(sign, ())]
        yield from (begin for begin in begins if stage not in TENSORS or begin.startswith(f"{stage}."))


def _beginning(begins: Sequence[str]) -> Iterator[str]:
    """Yield the likeliest mistake of each beginning."""
    for begin in begins:
        yield from [one for one in _ranked() if one.startswith(begin)][:1]


def _of_stage(stage: str) -> Iterator[str]:
    """Yield a stage's mistakes, of several kinds the likeliest of each in front."""
    kinds = [[one for one in _ranked() if one.startswith(begin)] for begin in OF_STAGES.get(stage, (f"{stage}.",))]
    for alike in zip_longest(*kinds):
        yield from filter(None, alike)


def _fits(name: str, scene: Scene) -> bool:
    """Tell whether a mistake may look so: by the blocks that are right, the views, and the error's size."""
    part = _parts()[name]
    if scene.crops_alone:
        return RESIZED.match(name) is not None and (not scene.depth or "relative" in name)
    if RESIZED.match(name) and ".page" in scene.first.what:
        return False
    if scene.blocks_right:
        return part == "back" and bool(SMALL.search(name)) is scene.small
    if scene.depth is not None:
        return part in (("block", "wide") if scene.depth else ("front", "block", "wide")) and _as_large(name, scene)
    return _as_large(name, scene)


def _as_large(name: str, scene: Scene) -> bool:
    return scene.first.error is None or bool(SMALL.search(name)) is scene.small


@cache
def _ranked() -> Sequence[str]:
    """Return the ids, the likeliest first: those seen in ports, those thought of as such, then all others."""
    from pytest_dsocr.explain.catalogue import mistakes, ports

    seen = sorted((one for one in ports().values() if one.mistake), key=lambda one: not one.topic)
    return [*dict.fromkeys([*(one.mistake for one in seen), *mistakes()])]


@cache
def _words() -> Mapping[str, str]:
    from pytest_dsocr.explain.catalogue import mistakes

    return {name: one.words for name, one in mistakes().items()}


@cache
def _parts() -> Mapping[str, str]:
    from pytest_dsocr.explain.catalogue import mistakes

    return {name: one.part for name, one in mistakes().items()}
