"""Mistakes of real ports, planted in the session: the first stage that each breaks, and the cause that is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.case import Case, make_case
from pytest_dsocr.compare.divergence import SYMPTOMS, Divergence, always, first_divergence
from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import NEITHER, Comparison, Verdict, not_compared
from pytest_dsocr.contract import inputs
from pytest_dsocr.contract.grid import crop_grid
from pytest_dsocr.engine import clip, pipeline, sam
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.checkpoint import MINI
from pytest_dsocr.engine.fusion import fuse
from pytest_dsocr.engine.session import Session
from pytest_dsocr.mini.shipped import shipped
from pytest_dsocr.observation import Observation
from pytest_dsocr.subjects.session import SessionSubject
from suites.meta.compare.made import observation

Plant = Callable[[pytest.MonkeyPatch, Session[Any]], None]
NEW_TOKENS = 24
LIMITS = tolerances("float32")


@pytest.fixture(scope="module")
def session() -> Session[Any]:
    return Session.from_checkpoint(MINI, instrument="off")


@pytest.fixture(scope="module")
def case() -> Case:
    [page] = [page for page in shipped("all") if page.stem == "receipt_086"]
    return make_case(page, "markdown", "gundam", NEW_TOKENS)


@pytest.fixture(scope="module")
def intact(session: Session[Any], case: Case) -> Observation:
    return SessionSubject(session).follow(case, observation())[0]


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


def plant_ngram_rule(patch: pytest.MonkeyPatch, session: Session[Any]) -> None:
    patch.setattr(session, "policy", replace(session.policy, no_repeat_ngram_size=2))


def prompted(before: str, end: str = ".") -> Plant:
    text = f"\n<|grounding|>Convert the document to markdown{end}"
    return patched(inputs, "split_at_images", lambda *_: [before, text])


def patched(where: Any, name: str, value: Any) -> Plant:
    return lambda patch, _: patch.setattr(where, name, value)


PLANTED = [
    ("grid swapped", plant_grid, "input_ids", "the crop grid"),
    ("a system prompt", prompted("Read this.\n"), "input_ids", "how many ids there are"),
    ("a comma for a full stop", prompted("", ","), "input_ids", "the prompt's text"),
    ("another mean", patched(inputs, "MEAN", 0.48), "images_crop", "the filter"),
    ("SAM's table without antialias", patched(sam, "resize_grid", coarsely), "sam.crops", "how SAM's position tables"),
    ("SAM's quick GELU", patched(F, "gelu", clip.quick_gelu), "sam.crops", "SAM's relative positions"),
    ("CLIP's table without antialias", patched(clip, "resize_grid", coarsely), "clip.crops", "how CLIP's 16 x 16"),
    ("CLIP's erf GELU", patched(clip, "quick_gelu", F.gelu), "clip.crops", "CLIP: SAM's features"),
    ("SAM before CLIP", patched(pipeline.Pipeline, "projector", sam_first), "projector.crops", "that CLIP's features"),
    ("page before crops", patched(pipeline, "fuse", page_first), "vision_fusion", "the order"),
    ("a prefill of its own", patched(pipeline, "scatter", lambda embeds, *_: embeds), "prefill", "the decoder"),
    ("steps one too far", plant_step_positions, "logits", "the decode steps"),
    ("another n-gram rule", plant_ngram_rule, "tokens", "the choice"),
]


@pytest.mark.parametrize(("name", "plant", "first", "cause"), PLANTED, ids=[planted[0] for planted in PLANTED])
def test_a_planted_mistake_is_told_by_its_stage_and_cause(
    name: str,
    plant: Plant,
    first: str,
    cause: str,
    session: Session[Any],
    case: Case,
    intact: Observation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, session)
    mine, forced = SessionSubject(session).follow(case, intact)
    told = first_divergence(list(compare_observations(mine, forced, intact, LIMITS)))
    assert told is not None
    assert told.first.what == first
    assert told.cause.startswith(cause)


def test_an_intact_session_diverges_nowhere(session: Session[Any], case: Case, intact: Observation) -> None:
    mine, forced = SessionSubject(session).follow(case, intact)
    assert first_divergence(list(compare_observations(mine, forced, intact, LIMITS))) is None


def comparisons(*wrong: str, shape: bool = False) -> Iterator[Comparison]:
    measured = "shape [2]; the reference has [3]" if shape else "other"
    for what in ("input_ids", "images_seq_mask", "images_crop", "images_ori", "sam.crops", "sam.page", "vision_fusion"):
        yield Comparison(what, Verdict.WRONG if what in wrong else Verdict.MATCH, measured)


@pytest.mark.parametrize(
    ("found", "first", "cause"),
    [
        (comparisons("input_ids", "images_seq_mask"), "input_ids", "how many ids there are"),
        (comparisons("images_seq_mask"), "images_seq_mask", "that the mask is True"),
        (comparisons("images_crop"), "images_crop", "that the page is stretched"),
        (comparisons("images_ori"), "images_ori", "the whole view"),
        (comparisons("sam.page"), "sam.page", "SAM's relative positions"),
        (comparisons("vision_fusion", shape=True), "vision_fusion", "the number of newlines"),
        ([Comparison("something", Verdict.WRONG, "other")], "something", "what makes something"),
    ],
)
def test_neighbours_tell_causes_apart(found: Sequence[Comparison], first: str, cause: str) -> None:
    told = first_divergence(list(found))
    assert told is not None
    assert (told.first.what, told.cause[: len(cause)]) == (first, cause)


def test_what_was_not_compared_is_not_counted_as_right() -> None:
    wrong = Comparison("text", Verdict.WRONG, "4 characters differ")
    told = first_divergence([not_compared("boxes", NEITHER), Comparison("tokens", Verdict.MATCH, "all"), wrong])
    assert isinstance(told, Divergence)
    assert list(told.lines) == [
        "first wrong  text, after 1 that are right: 4 characters differ",
        "check        how tokens become text: special tokens kept, spaces not tidied, EOS taken off the end",
    ]


def test_every_general_symptom_stands_behind_the_particular_ones_of_its_stage() -> None:
    general: set[str] = set()
    for symptom in SYMPTOMS:
        assert symptom.at not in general, f"{symptom.cause} is never told"
        if symptom.shows is always:
            general.add(symptom.at)
