"""Mistakes of DeepSeek-OCR-2 alone, planted in an engine: each is found in its stage and named."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.explain.explain import explain
from pytest_dsocr.explain.mistake import Changes
from pytest_dsocr.explain.planted import plant
from pytest_dsocr.explain.question import question_of
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.models import MODELS
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.reference.engine import EngineRuntime
from pytest_dsocr.run.sides import ask
from suites.contract.pages import write_page
from tests.faults.outcome import stage_of, stage_of_group

OWN = MODELS["deepseek_ocr2"]
WHOLE, CUT, SQUARE = ("landscape", "small"), ("screen", "gundam"), ("700_square", "gundam")
"""Pages with their presets: squashed into one view, cut into two crops, and not cut because no side is above 768 px."""
ENOUGH_S = 600
OF_PAGES = {
    "qwen2.mask-causal": WHOLE,
    "qwen2.mask-image-sees-queries": WHOLE,
    "qwen2.mask-both-ways": WHOLE,
    "qwen2.queries-other": WHOLE,
    "qwen2.queries-interpolated": WHOLE,
    "qwen2.image-half": WHOLE,
    "qwen2.no-final-norm": WHOLE,
    "qwen2.theta-10000": WHOLE,
    "qwen2.heads-tiled": WHOLE,
    "qwen2.positions-restarted": WHOLE,
    "qwen2.sam-joined": WHOLE,
    "vision_fusion.separator-of-256": WHOLE,
    "vision_fusion.mosaic": CUT,
    "vision_fusion.newlines-separator": CUT,
    "prompt.counts-newlines": CUT,
    "prompt.counts-640": CUT,
    "pixels.grid-limit-640": SQUARE,
    "pixels.not-squashed": WHOLE,
    "prefill.rope-interleaved": WHOLE,
}
ALIKE = {
    "vision_fusion.separator-of-256": {"vision_fusion.no-separator"},
    "prompt.counts-640": {"prompt.preset-lossy640"},
    "pixels.grid-limit-640": {"pixels.grid-always", "pixels.grid-always-first", "pixels.grid-always-last"},
}
"""Other mistakes with the same effect on that page."""


class Reference:
    """Reference with the engine that is also the subject, without the mistake."""

    def __init__(self) -> None:
        self.runtime = EngineRuntime.load("deepseek_ocr2:synthetic:tiny")
        self.provenance, self.observe = self.runtime.provenance, cache(self._observe)

    def _observe(self, case: Case) -> ReferenceResult:
        return self.runtime.observe(case)

    def close(self) -> None:
        """Do nothing: no process is open."""


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


def judged(reference: Reference, case: Case) -> CaseReport:
    return judge(ask(reference.runtime.subject, reference, case), tolerances("float32"))


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(("name", "page"), OF_PAGES.items(), ids=OF_PAGES)
def test_a_mistake_is_found_in_its_stage_and_named(
    name: str, page: tuple[str, str], reference: Reference, folder: Path
) -> None:
    engine: Any = reference.runtime.subject.engine
    path = next(folder.glob(f"{page[0]}.*"), None) or write_page(page[0], folder)
    reference.observe(case := make_case(path, "markdown", page[1], 1, family=OWN))
    with Changes() as changes:
        plant(mistakes(OWN)[name], engine, changes)
        report = judged(reference, case)
    assert report.divergence is not None
    assert stage_of(report.divergence.first.stage) == stage_of_group(mistakes(OWN)[name].group)
    question = question_of(report, ENOUGH_S)
    assert question is not None
    with torch.no_grad():
        clean = Clean(engine, engine.prepare(case.page, prompt=case.prompt, preset=case.preset))
        found = explain(engine, case, question, lambda _: clean)
    assert (found.explained, found.error) == (True, 0.0)
    assert sorted(found.found) == sorted((name, *ALIKE.get(name, ())))
