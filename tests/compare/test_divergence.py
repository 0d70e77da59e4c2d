"""Mistakes of real ports, planted in the session: the first stage that each breaks, and the cause that is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.compare.divergence import Divergence, first_divergence
from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict, not_compared
from pytest_dsocr.contract import inputs
from pytest_dsocr.contract.image import crops
from pytest_dsocr.contract.presets import PRESETS, Preset, crop_grid
from pytest_dsocr.contract.prompt import PROMPTS, prompt_ids
from pytest_dsocr.engine import clip, pipeline, sam
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.experts import Router
from pytest_dsocr.engine.fusion import fuse
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.engine.session import Session
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import Best, Observation, Output, Step
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.subjects.follow import follow
from pytest_dsocr.subjects.session import SessionSubject
from tests.compare.made import observation
from tests.crops import CROPS

Plant = Callable[[pytest.MonkeyPatch, Session[Any]], None]
NEW_TOKENS = 12
WHOLE = PRESETS["gundam"]
"""Sees the whole page at the size of the encoders' own tables, which nothing resizes then."""
LIMITS = tolerances("float32")


@pytest.fixture(scope="module")
def session() -> Session[Any]:
    return Session.from_checkpoint(MINI, instrument="off")


@pytest.fixture(scope="module")
def intact(session: Session[Any]) -> dict[Preset, tuple[Case, Observation]]:
    """The reference by preset: the session before anything was planted in it."""
    [page] = [page for page in shipped("all") if page.stem == "receipt_086"]
    cases = [Case(page, PROMPTS["markdown"], preset, NEW_TOKENS) for preset in (CROPS, WHOLE)]
    return {case.preset: (case, observed(session, case)) for case in cases}


def observed(session: Session[Any], case: Case) -> Observation:
    said = session.run(case.page, prompt=case.prompt, preset=case.preset, max_new_tokens=NEW_TOKENS).token_ids
    alike = observation(keep_values=True, steps=tuple(Step(token, Best((0,), (0.0,))) for token in said))
    seen = follow(SessionSubject(session), case, alike)
    assert seen.inputs
    assert seen.prefill_best
    assert seen.forced
    assert seen.mmd is not None
    assert seen.artefacts is not None
    steps = tuple(Step(token, forced.best) for token, forced in zip(said, seen.forced, strict=True))
    output = Output(seen.text, seen.spans, seen.mmd, seen.artefacts)
    return Observation(case.id, seen.inputs, seen.seams, seen.prefill_best, steps, output)


def coarsely(table_HWC: Tensor, size: int) -> Tensor:
    """Resize a table of positions as without antialias."""
    planes = table_HWC.permute(2, 0, 1)[None]
    return F.interpolate(planes, size=(size, size), mode="bicubic")[0].permute(1, 2, 0)


def sam_first(self: Any, clip: Tensor, sam: Tensor) -> Tensor:
    projected: Tensor = self.model.project(torch.cat([sam.flatten(2).transpose(1, 2), clip[:, 1:]], dim=-1))
    return projected


def page_first(crops: Tensor | None, page: Tensor, grid: Any, newline: Tensor, separator: Tensor) -> Tensor:
    """Arrange the whole page before the crops."""
    assert crops is not None
    whole = fuse(None, page, grid, newline, separator)[:-1]
    both = fuse(crops, page, grid, newline, separator)
    return torch.cat([whole, both[: -len(whole) - 1], separator[None]])


positions = KVCache.positions


def plant_grid(patch: pytest.MonkeyPatch, _: Session[Any]) -> None:
    patch.setattr(inputs, "crop_grid", lambda width, height: crop_grid(width, height)[::-1])


def plant_step_positions(patch: pytest.MonkeyPatch, _: Session[Any]) -> None:
    patch.setattr(KVCache, "positions", lambda self, new, device: positions(self, new, device) + (new == 1))


def plant_no_bos(patch: pytest.MonkeyPatch, _: Session[Any]) -> None:
    patch.setattr(inputs, "prompt_ids", lambda *asked: tuple(row[1:] for row in prompt_ids(*asked)))
    patch.setattr(inputs, "check_inputs", lambda *_: None)


def plant_whole_levels(patch: pytest.MonkeyPatch, _: Session[Any]) -> None:
    right = inputs.normalise
    patch.setattr(inputs, "normalise", lambda levels: right(levels).round())


def plant_weights_that_sum_to_one(patch: pytest.MonkeyPatch, session: Session[Any]) -> None:
    for module in session.model.get_submodule("model").modules():
        if isinstance(module, Router):
            patch.setattr(module, "normalise", True)


def plant_a_sliding_cache(patch: pytest.MonkeyPatch, _: Session[Any]) -> None:
    """Hold three positions more than the prompt, and forget what stands first for the next."""
    append = KVCache.append
    room = 0

    def sliding(self: KVCache, layer: int, keys: Tensor, values: Tensor, at: Tensor) -> tuple[Tensor, ...]:
        nonlocal room
        room = keys.shape[2] + 3 if self.length == 0 else room
        kept = append(self, layer, keys, values, at)
        for tensor in kept:
            tensor[:, :, : max(0, tensor.shape[2] - room)] = 0
        return kept

    patch.setattr(KVCache, "append", sliding)


def plant_steps_that_stand_still(patch: pytest.MonkeyPatch, _: Session[Any]) -> None:
    patch.setattr(SessionSubject, "step", lambda self, state, token: state.logits)


def plant_ngram_rule(patch: pytest.MonkeyPatch, session: Session[Any]) -> None:
    patch.setattr(session, "policy", replace(session.policy, no_repeat_ngram_size=1))


def prompted(before: str, end: str = ".") -> Plant:
    text = f"\n<|grounding|>Convert the document to markdown{end}"
    return patched(inputs, "split_at_images", lambda *_: [before, text])


def patched(where: Any, name: str, value: Any) -> Plant:
    return lambda patch, _: patch.setattr(where, name, value)


PLANTED = [
    ("grid swapped", plant_grid, "input_ids", "the crop grid"),
    ("a system prompt", prompted("Read this.\n"), "input_ids", "how the ids are put together"),
    ("a comma for a full stop", prompted("", ","), "input_ids", "the prompt's text"),
    ("another mean", patched(inputs, "MEAN", 0.48), "images_crop", "the filter"),
    (
        "SAM's table without antialias",
        patched(sam, "resize_grid", coarsely),
        "sam.crops/0",
        "how SAM's absolute positions",
    ),
    ("SAM's quick GELU", patched(F, "gelu", clip.quick_gelu), "sam.crops/0", "SAM by a little"),
    ("CLIP's table without antialias", patched(clip, "resize_grid", coarsely), "clip.crops/0", "how CLIP's 16 x 16"),
    ("CLIP's erf GELU", patched(clip, "quick_gelu", F.gelu), "clip.crops/0", "CLIP by a little"),
    ("SAM before CLIP", patched(pipeline.Pipeline, "projector", sam_first), "projector.crops", "that CLIP's features"),
    ("page before crops", patched(pipeline, "fuse", page_first), "vision_fusion", "the order"),
    ("no BOS", plant_no_bos, "input_ids", "that BOS"),
    (
        "crops from the last on",
        patched(inputs, "crops", lambda *asked: crops(*asked)[::-1]),
        "images_crop",
        "the crops' order",
    ),
    ("whole levels", plant_whole_levels, "images_crop", "that crops are not cast"),
    ("weights that sum to one", plant_weights_that_sum_to_one, "prefill/1", "the decoder's layer 1"),
    ("a sliding cache", plant_a_sliding_cache, "logits", "the cache"),
    ("steps that stand still", plant_steps_that_stand_still, "logits", "that each step's own logits"),
    (
        "a prefill of its own",
        patched(pipeline, "scatter", lambda embeds, *_: embeds),
        "prefill/0",
        "what the decoder is given",
    ),
    ("steps one too far", plant_step_positions, "logits", "the first decode step"),
    ("another n-gram rule", plant_ngram_rule, "tokens", "what keeps it"),
]


def compared(session: Session[Any], case: Case, intact: Observation) -> list[Comparison]:
    return list(compare_observations(follow(SessionSubject(session), case, intact), intact, LIMITS))


def wordless(comparison: Comparison) -> Comparison:
    return replace(comparison, measured="", details=())


@pytest.mark.parametrize(("name", "plant", "first", "cause"), PLANTED, ids=[planted[0] for planted in PLANTED])
def test_a_planted_mistake_is_told_by_its_stage_and_cause(
    name: str,
    plant: Plant,
    first: str,
    cause: str,
    session: Session[Any],
    intact: dict[Preset, tuple[Case, Observation]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, session)
    found = compared(session, *intact[WHOLE if "table" in name else CROPS])
    told = first_divergence(found)
    assert told is not None
    assert told.first.what == first
    assert told.cause.startswith(cause)
    silent = first_divergence([wordless(one) for one in found])
    assert silent is not None
    assert silent.cause == told.cause, "a cause is found by signs, and not by what sentences say"


def drifting(what: str, error: float, verdict: Verdict = Verdict.DRIFT) -> Comparison:
    return Comparison(what, verdict, "", error)


def test_the_cause_is_looked_for_where_the_error_begins() -> None:
    """An epsilon of CLIP's stays below the limit in its first blocks."""
    begins = drifting("clip.page/0", 5e-5)
    found = [drifting("sam.page", 2e-7), begins, drifting("clip.page/1", 2e-4, Verdict.WRONG)]
    told = first_divergence(found)
    assert told is not None
    assert (told.first.what, told.begins) == ("clip.page/1", "clip.page/0")
    assert told.cause.startswith(
        "it begins at clip.page/0 with a relative error of 5e-05, within the tolerance: CLIP by"
    )


def test_what_is_rounding_begins_nothing() -> None:
    """A bias that one block lacks is not laid to epsilons, which all blocks have."""
    told = first_divergence([drifting("clip.page/4", 1.9e-5), drifting("clip.page/5", 2e-3, Verdict.WRONG)])
    assert told is not None
    assert told.cause.startswith("CLIP's block 5, for those in front are right: its weights and biases")


def test_an_intact_session_diverges_nowhere(
    session: Session[Any], intact: dict[Preset, tuple[Case, Observation]]
) -> None:
    assert first_divergence(compared(session, *intact[CROPS])) is None


def test_what_was_not_compared_is_not_counted_as_right() -> None:
    wrong = Comparison("text", Verdict.WRONG, "4 characters differ")
    right = [Comparison(what, Verdict.MATCH, "all") for what in ("logits", "tokens")]
    told = first_divergence([not_compared("boxes", Reason.NEITHER), *right, wrong])
    assert isinstance(told, Divergence)
    assert told == Divergence(wrong, 2, "how tokens become text, for the tokens are right")
