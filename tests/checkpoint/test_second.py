"""The second checkpoint: its bytes, its verdicts on planted mistakes, and the subjects that do not offer it."""

import html
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.compare.case import judge
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.explain.mistake import Changes
from pytest_dsocr.explain.planted import Planting, spec_of
from pytest_dsocr.layers.norms import RmsNorm
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.records.reference_result import Seam
from pytest_dsocr.reference.goldens import shipped_folder
from pytest_dsocr.reference.opening import WantedReference, open_recorded
from pytest_dsocr.subjects.engine import EngineSubject, engine_subject
from pytest_dsocr.subjects.protocol import NotOfferedError, Setup
from suites.checkpoint.conftest import _is_asked
from suites.checkpoint.made import PAGES, write_awkward
from suites.checkpoint.second import FIRST_LAYER, MORE_EXACT, Second, _tightened
from tests.compare.made import random
from tests.report.made import LIMITS, config, exchange

RUN = config(subject="engine", checkpoint="mini", device="cpu", dtype="float32", attention="eager")
IN_HALF = replace(RUN, attention="sdpa", reference_attention="eager", explain=0.0)
"""Config for bfloat16: eager products are slow on CPUs without AVX-512, and ``suites/checkpoint`` runs them anyway."""


class InFloat32(EngineSubject):
    """Correct subject that names no dtypes."""

    dtypes = ()


def takes_one(setup: Setup) -> EngineSubject:
    """Accept the run's checkpoint only."""
    if setup.checkpoint != "mini":
        raise NotImplementedError("one checkpoint is built in")
    return engine_subject(setup)


def ignores_it(setup: Setup) -> EngineSubject:
    """Load one checkpoint for every Setup."""
    return engine_subject(replace(setup, checkpoint="synthetic:tiny"))


def _rounds_once(own: EngineSubject, changes: Changes) -> None:
    """Multiply by a norm's weight before the cast, as an exact norm does."""

    def forward(self: RmsNorm, x: Tensor) -> Tensor:
        wide = x.float()
        return (self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps))).to(x.dtype)

    changes.set(RmsNorm, "forward", forward)


rounds_once = Planting(_rounds_once)


class Tidies:
    """Subject of L0 that changes its text."""

    def __init__(self, setup: Setup, tidied: Callable[[str], str]) -> None:
        self.engine, self.tidied = engine_subject(setup), tidied

    def read(self, page: Path, **how: Any) -> str:
        return self.tidied(self.engine.read(page, **how))


resolves_entities = partial(Tidies, tidied=html.unescape)
joins_empty_lines = partial(Tidies, tidied=partial(re.sub, "\n{3,}", "\n\n"))
joins_stops = partial(Tidies, tidied=partial(re.sub, r" (?=\.)", ""))
changes_nothing = partial(Tidies, tidied=str)


@pytest.fixture(scope="module")
def second(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Second:
    return Second.written(RUN, EngineSubject(tiny), tmp_path_factory.mktemp("second"))


@pytest.mark.parametrize("family", MODELS.values(), ids=lambda family: family.name)
@pytest.mark.parametrize("dtype", PAGES["tiny"])
def test_what_is_written_is_what_was_recorded(dtype: str, family: ModelSpec, tmp_path: Path) -> None:
    """Find the recording of these weights, with other tokens in bfloat16 than in float32."""
    wanted = WantedReference(resolve(write_awkward(tmp_path, family)), "cpu", dtype)
    reference = open_recorded([shipped_folder() / "vendor"], wanted)
    [case] = reference.recording.cases.values()
    text = case.observation.output.text
    assert "s u<｜▁pad▁｜> w" in text
    assert (" zebra yellow wonder winter" in text) == (dtype == "float32")
    assert case.observation.steps[-1].token == 1
    assert 2 in [step.token for step in case.observation.steps]


@pytest.mark.parametrize("subject", ["resolves_entities", "joins_empty_lines", "joins_stops", "changes_nothing"])
def test_a_text_that_is_tidied_is_wrong_where_it_is_all_that_is_offered(subject: str, second: Second) -> None:
    asked = replace(second, config=replace(RUN, subject=f"{__name__}:{subject}", explain=0.0))
    assert asked.report("float32", second.reference("float32")).passes is (subject == "changes_nothing")


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(
    ("subject", "first_wrong"),
    [
        (f"{__name__}:rounds_once", ()),
        (spec_of("prefill.norm-bfloat16"), (FIRST_LAYER,)),
        (spec_of("prefill.experts-router-bfloat16"), ("prefill/1", "prefill/2")),
    ],
)
def test_in_bfloat16_more_exact_is_not_wrong_and_less_exact_is(
    subject: str, first_wrong: tuple[str, ...], second: Second
) -> None:
    """Allow two layers for the router: the CPU decides in which one another expert is chosen first."""
    asked = replace(second, config=replace(IN_HALF, subject=subject))
    report = asked.report("bfloat16", second.reference("bfloat16"))
    assert report.divergence.first.what in first_wrong if report.divergence else not first_wrong
    [first] = [one for one in report.comparisons if one.what == FIRST_LAYER]
    assert (MORE_EXACT in first.measured) is (not first_wrong)


def test_a_first_layer_of_another_shape_is_wrong_however_exact_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other ids give another number of rows, so the relative error is infinite."""
    monkeypatch.setattr("suites.checkpoint.second._is_more_exact", lambda *_: True)
    seams = [{FIRST_LAYER: Seam.of(random(1, rows, 4), keep_values=True)} for rows in (12, 9)]
    made = exchange(tmp_path, seams=seams[0])
    made = replace(made, expected=replace(made.expected, seams=seams[1]))
    [first] = [one for one in _tightened(judge(made, LIMITS), IN_HALF, None).comparisons if one.what == FIRST_LAYER]
    assert first.verdict is Verdict.WRONG


@pytest.mark.parametrize(
    ("subject", "dtype", "message"),
    [
        (f"{__name__}:takes_one", "float32", "another checkpoint or dtype .one checkpoint is built in"),
        ("cli:my-ocr --image {page}", "float32", "a command or a server has its own"),
        (f"{__name__}:InFloat32", "bfloat16", "the subject's dtypes do not name it"),
    ],
)
def test_who_does_not_offer_it_is_reported(subject: str, dtype: str, message: str, second: Second, tiny: Any) -> None:
    asked = replace(second, config=replace(RUN, subject=subject), first=InFloat32(tiny))
    with pytest.raises(NotOfferedError, match=message):
        asked.report(dtype, second.reference(dtype))


def test_a_factory_that_loads_another_checkpoint_than_it_was_asked_to_is_an_error(second: Second) -> None:
    asked = replace(second, config=replace(RUN, subject=f"{__name__}:ignores_it"))
    with pytest.raises(DsocrError, match=r"features have 64 channels; expected 160, .* load what Setup names"):
        asked.report("float32", second.reference("float32"))


@pytest.mark.parametrize(
    ("other", "asked"),
    [({}, True), ({"dtype": "bfloat16"}, False), ({"device": "cuda"}, False), ({"checkpoint": str(Path())}, False)],
)
def test_only_runs_of_the_embedded_checkpoint_in_float32_on_a_cpu_ask_for_it(
    other: dict[str, Any], asked: bool
) -> None:
    assert _is_asked(replace(RUN, **other)) is asked
