"""Rounding of real blocks in bfloat16 on a CPU, with and without mistakes that are smaller than it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.base.elapsed import Elapsed
from pytest_dsocr.base.errors import MachineError
from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.compare.seams import OF_BLOCKS, compare_rounding, known_effects
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.explain.catalogue import groups, mistakes
from pytest_dsocr.explain.explainer import Explainer
from pytest_dsocr.explain.mistake import Changes, model_of
from pytest_dsocr.explain.parts import ComputedPart, parts_of
from pytest_dsocr.explain.planted import plant
from pytest_dsocr.explain.rounding import Rounder
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.spec import FUSION
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.block_seams import watch_passes
from pytest_dsocr.records.case import make_case
from pytest_dsocr.records.config import Level, Setup
from pytest_dsocr.records.passes import places_of
from pytest_dsocr.records.reference_result import Seam
from pytest_dsocr.records.subject_result import Rounding
from pytest_dsocr.reference.opening import WantedReference, open_recorded
from pytest_dsocr.report.case_result import CaseResult
from pytest_dsocr.run.case import run_case
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.subjects.calls import watching
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.engine import EngineSubject, engine_subject
from suites.contract.pages import write_page
from tests.recordings import FOLDER
from tests.report.made import config
from tests.subjects.calling import Padded, PageFirst, called

SETUP = Setup(dtype="bfloat16")
CASE = make_case(
    next(page for page in shipped("dev-3") if page.stem == "figures_201"), "markdown", "tiny", family=DEEPSEEK_OCR
)


@cache
def subject() -> EngineSubject:
    return engine_subject(SETUP)


@cache
def rounder() -> Rounder:
    return Rounder(SETUP, budget_s=600)


@cache
def rounder_without_search() -> Rounder:
    return Rounder(SETUP, budget_s=0)


@cache
def parts(*names: str, level: Level = Level.MODULES) -> Sequence[ComputedPart]:
    """Return the subject's parts, with mistakes of the catalogue in it or with none."""
    asked = CheckedSubject(subject())
    asked.level = level
    with Changes() as changes:
        for name in names:
            plant(mistakes(DEEPSEEK_OCR)[name], subject().engine, changes)
        return parts_of(asked, asked.inputs(CASE))


def rounding(name: str, stage: str, level: Level = Level.MODULES) -> Rounding:
    rounder().forget()
    return rounder().measure([one for one in parts(name, level=level) if one.stage == stage])[stage]


@pytest.mark.dsocr_slow
@pytest.mark.parametrize("level", [Level.MODULES, Level.STAGES])
def test_the_vendors_own_kernels_are_equal_to_the_bit(level: Level) -> None:
    found = rounder().measure(parts(level=level))
    assert [*found] == ["sam", "clip", "projector", "vision_fusion", *["prefill"] * (level is Level.MODULES)]
    assert {one.differing for one in found.values()} == {0.0}
    assert found["clip"].parts == (5 if level is Level.MODULES else 1), "four blocks and their output"


@pytest.mark.dsocr_slow
@pytest.mark.parametrize("name", ["clip.activation-1.7", "clip.activation-erf"])
def test_a_mistake_smaller_than_rounding_is_found_and_named(name: str) -> None:
    found = rounding(name, "clip")
    assert compare_rounding("clip", found, tolerances("bfloat16").rounding).verdict is Verdict.WRONG
    assert known_effects(found)[0].id == name
    assert len(found.tried) > 50
    again = rounder().measure(parts(name))["clip"]
    assert (known_effects(again)[0].id, again.tried) == (name, found.tried), "a later page tries only this one"


@pytest.mark.parametrize("name", ["newline-zero", "separator-zero", "exchanged", None])
def test_a_single_wrong_row_of_fusion_is_found_though_the_whole_tensor_is_near(name: str | None) -> None:
    """Fusion copies: its rows are exact in any dtype, and the separator is one row of hundreds."""
    given = next(one for one in parts() if one.stage == FUSION)
    changed = given.compute(rounder().vendor, mistakes(DEEPSEEK_OCR)[f"vision_fusion.{name}"] if name else None)
    rounder().forget()
    found = rounder().measure([replace(given, gave=changed)])[FUSION]
    verdict = compare_rounding(FUSION, found, tolerances("bfloat16").rounding).verdict
    assert verdict is (Verdict.WRONG if name else Verdict.MATCH)
    assert [one.id for one in known_effects(found)] == ([f"vision_fusion.{name}"] if name else [])


@pytest.mark.parametrize(("row", "factor", "verdict"), [(0, 1.004, Verdict.DRIFT), (-1, 1.1, Verdict.WRONG)])
def test_a_row_of_fusion_may_be_rounded_and_no_more(row: int, factor: float, verdict: Verdict) -> None:
    given = next(one for one in parts() if one.stage == FUSION)
    changed = given.gave.float()
    changed[row] *= factor
    found = rounder_without_search().measure([replace(given, gave=changed)])[FUSION]
    assert compare_rounding(FUSION, found, tolerances("bfloat16").rounding).verdict is verdict


def test_what_the_model_has_not_is_left_out() -> None:
    block, *others = (one for one in parts() if one.stage == "clip")
    beyond, cut = replace(block, depth=99), replace(block, gave=block.gave[:, 1:])
    assert rounder().measure([beyond, cut, *others])["clip"].parts == len(others)
    assert rounder().measure([beyond]) == {}


def test_without_blocks_a_stage_shows_a_mistake_as_a_whole() -> None:
    found = rounding("clip.activation-erf", "clip", Level.STAGES)
    assert found.is_whole
    assert "clip.activation-erf" in [one.id for one in known_effects(found)]


def test_a_stage_after_its_blocks_is_computed_alone_to_the_same() -> None:
    sam = next(one for one in parts(level=Level.STAGES) if one.stage == "sam")
    blocks = rounder()._difference(sam, sam.gave).blocks
    truth = sam.compute(rounder().truth, wide=True)
    for one in groups(DEEPSEEK_OCR)["sam"].of("back")[1::32]:
        whole, alone = (sam.compute(rounder().truth, one, wide=True, blocks=known) for known in (None, blocks))
        assert torch.equal(whole, alone)
        assert not torch.equal(whole, truth)


@pytest.mark.dsocr_slow
def test_weights_in_eight_bits_have_a_bias() -> None:
    """The bias depends on the CPU's products: 9.1 was seen, and also more than the 10 that are allowed."""
    found = rounding("prefill.weights-int8", "prefill")
    assert found.ratio < 4
    assert found.bias > 0.8 * OF_BLOCKS.bias
    verdict = compare_rounding("prefill", replace(found, effects=()), 4.0).verdict
    assert (verdict is Verdict.WRONG) is (found.bias > OF_BLOCKS.bias)


@pytest.mark.dsocr_slow
def test_a_mistake_of_experts_is_found_where_the_first_layer_that_differs_has_none() -> None:
    fewer_bits = Rounder(SETUP, budget_s=600, fewer_bits=True)
    for mistake in ((), ("prefill.experts-times-2.5",)):
        first, second, *_ = (one for one in parts("prefill.weights-int8", *mistake) if one.stage == "prefill")
        fewer_bits.forget()
        found = fewer_bits.measure([first, second])["prefill"]
        assert tuple(one.id for one in known_effects(found)) == mistake


@pytest.mark.dsocr_slow
def test_more_exact_is_not_wrong() -> None:
    exact = [replace(one, gave=one.compute(rounder().truth, wide=True)) for one in parts()]
    rounder().forget()
    for stage, found in rounder().measure(exact).items():
        assert found.differing > 0.9
        assert found.ratio < 0.1
        assert compare_rounding(stage, found, 4.0).verdict is Verdict.DRIFT


def test_a_decode_step_is_no_pass_of_a_block() -> None:
    asked = CheckedSubject(subject())
    inputs = asked.inputs(CASE)
    with torch.no_grad(), watch_passes(subject().module) as passes:
        state, _ = asked.prefill(inputs, None)
        asked.step(state, 5)
    assert {one.given.shape[1] for one in passes} == {inputs["input_ids"].shape[1]}


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(("kind", "of_blocks"), [(PageFirst, {"sam", "clip", "prefill"}), (Padded, set[str]())])
def test_calls_in_chunks_round_as_whole_ones_and_padded_ones_are_left_out(
    kind: type[Pipeline[Any]], of_blocks: set[str]
) -> None:
    asked = CheckedSubject(called(subject().engine, kind))
    inputs = asked.inputs(CASE)
    shapes = {one.name: Seam.of(one.gave) for one in parts() if one.depth is not None}
    found = parts_of(asked, inputs, places_of(shapes, inputs))
    assert {one.stage for one in found if one.depth is not None} == of_blocks
    whole = {one.name: one.gave.shape for one in parts()}
    assert {one.name: one.gave.shape for one in found}.items() <= whole.items()
    for stage, rounding in rounder_without_search().measure(found).items():
        assert compare_rounding(stage, rounding, tolerances("bfloat16").rounding).passes


def run(name: str, folder: Path) -> tuple[CaseReport, CaseResult]:
    """Run a page of a subject with a mistake, on the sizes that are computed soonest."""
    own = config(checkpoint="synthetic:small", dtype="bfloat16", explain=600.0, out=None)
    wanted = WantedReference(resolve(own.checkpoint), "cpu", "bfloat16", fixed=frozenset())
    case = make_case(write_page("portrait", folder), "markdown", "small", max_new_tokens=2, family=DEEPSEEK_OCR)
    asked = engine_subject(own.setup)
    with Changes() as changes:
        plant(mistakes(DEEPSEEK_OCR)[name], asked.engine, changes)
        sides = (asked, open_recorded([FOLDER], wanted))
        return run_case(case, 1, *sides, own, Elapsed("test"), RunResources.of(own))


@pytest.mark.dsocr_slow
def test_a_run_breaks_there_and_is_explained(tmp_path: Path) -> None:
    report, payload = run("clip.activation-1.7", tmp_path)
    assert report.divergence is not None
    assert report.divergence.first.what == "clip.rounding"
    explanation = report.exchange.explanation
    assert explanation is not None
    assert (explanation.is_proven, explanation.mistakes) == (True, ("clip.activation-1.7",))
    assert payload.explained == explanation.text


@pytest.mark.dsocr_slow
def test_without_memory_a_note_says_what_was_not_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_memory(*_: object) -> None:
        raise MachineError("cuda:0 has no memory for weights of 13 GB")

    monkeypatch.setattr(Rounder, "measure", no_memory)
    notes: list[str] = []
    with watching(notes):
        report, _ = run("clip.activation-1.7", tmp_path)
    assert report.passes
    assert [note for note in notes if note.startswith("rounding was not looked at")]


def test_one_load_gives_the_vendors_engine_the_truth_and_the_donor(monkeypatch: pytest.MonkeyPatch) -> None:
    resources = RunResources(Setup("synthetic:tiny", dtype="bfloat16"), Explainer(SETUP, 0))
    own = resources.rounder_within(None)
    vendor = own.vendor
    monkeypatch.delattr(Engine, "from_checkpoint")
    assert resources.donor.engine is vendor
    pairs = zip(*(model_of(engine).parameters() for engine in (own.truth, vendor)), strict=True)
    assert all(wide.dtype == torch.float32 and wide.equal(narrow.float()) for wide, narrow in pairs)
    assert vendor.model.dtype == torch.bfloat16
    assert not own.truth.pipeline.autocast
