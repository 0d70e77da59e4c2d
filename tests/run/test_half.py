"""Real subjects in float16 on weights whose values leave its range, or stay within it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytest_dsocr.base.elapsed import Elapsed
from pytest_dsocr.base.errors import MachineError
from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.explain.overflow import LARGEST, WatchedPage, watched_page
from pytest_dsocr.explain.rounding import Rounder
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.config import Setup
from pytest_dsocr.reference.engine import IN_HALF, EngineReference, EngineRuntime
from pytest_dsocr.reference.opening import WantedReference
from pytest_dsocr.reference.protocol import ReferenceFaultError
from pytest_dsocr.report.failure import TestFailure
from pytest_dsocr.run.case import run_case
from pytest_dsocr.run.half import HalfRange
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.subjects.calls import watching
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.engine import EngineSubject, engine_subject
from suites.contract.asked import own_preset
from suites.contract.pages import write_page
from tests.engine.written import write_synthetic
from tests.report.made import config

SMALL = own_preset("small_view", 128, 128, crop=False)
IN_BLOCK = ("model.sam_model.blocks.1.mlp.lin2.weight", 3e5)
IN_NECK = ("model.sam_model.neck.0.weight", 2e3)
"""Weights, and a factor after which a block's output overflows, or only the square of a norm's input."""
UNJUDGED = "cannot be judged in float16: .*, where {} reaches .*; float16 ends at 65504"


@dataclass
class Bench:
    """Weights in a folder, a page, and the vendor's arithmetic in float32 as the reference."""

    folder: Path
    case: Case

    def __post_init__(self) -> None:
        self.config = config(checkpoint=str(self.folder), dtype="float16", explain=0.0, out=None)
        self.resources = RunResources.of(self.config)
        self.reference: Any = EngineRuntime.load(str(self.folder))

    @property
    def half(self) -> HalfRange:
        return self.resources.half

    def subject(self, kind: type[EngineSubject] = EngineSubject) -> EngineSubject:
        return kind(engine_subject(self.config.setup).engine)

    def report(self, subject: object) -> CaseReport:
        return run_case(self.case, 1, subject, self.reference, self.config, Elapsed("test"), self.resources)[0]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Bench]:
    """Return a function that makes a bench with the smallest weights, one of them multiplied by a factor."""
    pages = tmp_path_factory.mktemp("pages")
    case = make_case(write_page("portrait", pages), "free", SMALL, 2, family=DEEPSEEK_OCR)

    @cache
    def made(name: str = "", factor: float = 1.0) -> Bench:
        folder = tmp_path_factory.mktemp("weights")
        write_synthetic("tiny", folder, torch.float32, factors={name: factor} if name else {})
        return Bench(folder, case)

    return made


class Careful(EngineSubject):
    """An engine with the norms of SAM's neck in float32."""

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        for norm in (self.module("model.sam_model.neck.1"), self.module("model.sam_model.neck.3")):
            _in_float32(norm)
        return super().vision(inputs)


class CarefulAndWrong(Careful):
    """A careful engine with a mistake in CLIP."""

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: 1.5 * seam if name == "clip.page" else seam for name, seam in super().vision(inputs).items()}


class Misreader:
    """A subject of text alone that reads something else."""

    times = 0

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        self.times += 1
        return "something else"


def _in_float32(module: nn.Module) -> None:
    module.float()
    module.register_forward_pre_hook(lambda _, given: (given[0].float(),))
    module.register_forward_hook(lambda _, given, out: out.half())


class Overflowing(EngineSubject):
    """An engine with a CLIP block that multiplies its output."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        late = self.module("model.vision_model.transformer.layers.1.mlp")
        late.register_forward_hook(lambda _, given, out: out * 1e5)


class Late(EngineSubject):
    """An engine that overflows in decode steps alone."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.module("model.layers.1").register_forward_hook(_late)


def _late(_module: nn.Module, _given: Any, out: Tensor) -> Tensor:
    return out * 1e5 if out.shape[1] == 1 else out


class Mirrored(EngineSubject):
    """An engine that mirrors the page."""

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        inputs = super().inputs(page, prompt=prompt, preset=preset)
        return {**inputs, "images_ori": inputs["images_ori"].flip(-1)}


def watched(asked: EngineSubject, case: Case) -> WatchedPage:
    return watched_page(CheckedSubject(asked), CheckedSubject(asked).inputs(case), model_of(asked.engine))


def test_what_overflows_is_named_with_the_value_that_float32_has_there(bench: Callable[..., Bench]) -> None:
    made = bench(*IN_BLOCK)
    wide, largest = engine_subject(Setup(str(made.folder))), []
    wide.module("model.sam_model.blocks.1.mlp.lin2").register_forward_hook(
        lambda _, given, out: largest.append(float(out.abs().max()))
    )
    assert watched(wide, made.case).overflow is None
    found = made.half.of_vendor(made.case).overflow
    assert found is not None
    assert (found.stage, found.place) == ("sam", "SAM's block 1")
    assert found.reaches == pytest.approx(max(largest), rel=0.02)
    assert found.reaches > LARGEST


def test_an_overflow_that_leaves_no_infinity_behind_is_found(bench: Callable[..., Bench]) -> None:
    made = bench(*IN_NECK)
    page = watched(made.subject(), made.case)
    assert page.overflow is not None
    assert (page.overflow.place, page.overflow.operation) == ("SAM's neck", "pow")
    assert all(tensor.isfinite().all() for tensor in page.seams.values())


def test_within_the_range_nothing_overflows_and_a_subject_is_judged(bench: Callable[..., Bench]) -> None:
    made = bench()
    page = made.half.of_vendor(made.case)
    assert page.overflow is None
    assert {"SAM's block 0", "SAM's neck", "CLIP's block 1", "the decoder's layer 0"} <= {*page.reaches}
    notes: list[str] = []
    with watching(notes):
        report = made.report(made.subject(EngineSubject))
    assert report.limits.dtype == "float16"
    assert report.exchange.answer.rounding
    assert [note for note in notes if "the reference in float32" in note]
    wrong = made.report(made.subject(Mirrored))
    assert wrong.divergence is not None
    assert wrong.divergence.first.what == "images_ori"


@pytest.mark.parametrize(("factor", "place"), [(IN_BLOCK, "SAM's block 1"), (IN_NECK, "SAM's neck")])
def test_a_page_beyond_the_range_has_no_verdict(
    bench: Callable[..., Bench], factor: tuple[str, float], place: str
) -> None:
    made = bench(*factor)
    for check in (made.report, lambda asked: made.half.check_page(made.case, asked, "")):
        with pytest.raises(ReferenceFaultError, match=UNJUDGED.format(place)):
            check(made.subject())


def test_a_mistake_before_the_overflow_is_wrong_all_the_same(bench: Callable[..., Bench]) -> None:
    wrong = bench(*IN_BLOCK).report(bench(*IN_BLOCK).subject(Mirrored))
    assert wrong.divergence is not None
    assert wrong.divergence.first.what == "images_ori"


def test_a_subject_that_is_right_there_is_judged(bench: Callable[..., Bench]) -> None:
    made = bench(*IN_NECK)
    made.half.check_page(made.case, made.subject(Careful), "")
    report = made.report(made.subject(Careful))
    assert {one.what for one in report.comparisons if not one.passes} == set()
    assert report.exchange.answer.rounding == {}, "the vendor's kernels give no rounding to compare with"


def test_a_mistake_after_an_overflow_that_the_subject_avoids_is_wrong(bench: Callable[..., Bench]) -> None:
    made = bench(*IN_NECK)
    report = made.report(made.subject(CarefulAndWrong))
    assert report.divergence is not None
    assert report.divergence.first.stage == "clip"


def test_of_text_alone_a_wrong_page_beyond_the_range_has_no_verdict_and_is_read_once(
    bench: Callable[..., Bench],
) -> None:
    made, asked = bench(*IN_NECK), Misreader()
    made.half.check_page(made.case, asked, "")
    for _ in range(2):
        with pytest.raises(ReferenceFaultError, match=UNJUDGED.format("SAM's neck")):
            made.report(asked)
    assert asked.times == 1


def test_the_engine_is_no_reference_beyond_the_range(bench: Callable[..., Bench]) -> None:
    made = bench(*IN_NECK)
    reference = EngineReference(WantedReference(resolve(str(made.folder)), dtype="float16"))
    assert IN_HALF in reference.provenance.overrides
    with pytest.raises(ReferenceFaultError, match=UNJUDGED.format("SAM's neck")):
        made.half.check_page(made.case, made.subject(Careful), "float16")
    with pytest.raises(ReferenceFaultError, match=UNJUDGED.format("SAM's neck")):
        made.half.check_reference(made.case, None, reference)
    bench().half.check_reference(bench().case, None, reference)


@pytest.mark.parametrize(
    ("kind", "first", "place"), [(Overflowing, "clip", "CLIP's block 1"), (Late, "logits", "the decoder's layer 1")]
)
def test_an_overflow_of_the_subject_alone_explains_its_failure_and_no_mistake_is_named(
    bench: Callable[..., Bench], kind: type[EngineSubject], first: str, place: str
) -> None:
    made = bench()
    report = made.report(made.subject(kind))
    explanation = report.exchange.explanation
    assert report.divergence is not None
    assert report.divergence.first.stage == first
    assert explanation is not None
    assert (explanation.mistakes, explanation.is_proven) == ((), False)
    assert f"{place} reaches" in explanation.text
    reached = re.search(r"the vendor's arithmetic reaches (\S+) there, below 65504", explanation.text)
    assert reached is not None
    assert 0 < float(reached[1]) < LARGEST
    failing = [one for one in report.comparisons if not one.passes]
    assert TestFailure(failing, report, made.config).checks == [explanation.advice]


def test_without_memory_for_the_vendors_arithmetic_a_note_says_so(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(_: Rounder) -> None:
        raise MachineError("cuda:0 has no memory for weights of 13 GB")

    monkeypatch.setattr(Rounder, "vendor", property(no_memory))
    made, notes = bench(), list[str]()
    half = HalfRange("synthetic", Rounder(replace(made.config.setup), 0.0))
    with watching(notes):
        assert half.of_vendor(made.case).overflow is None
    assert [note for note in notes if note.startswith("the range of float16 was not checked")]
