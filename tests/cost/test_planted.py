"""Needless and missing work is named by its stage and its layer; work that is done in another way is none."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import suites
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.protocol import Setup
from suites.contract.asked import Drawn
from suites.cost.flops import Scales, page_of, prefill_of, step_of, vision_of
from tests.crops import CROPS

SUITE = Path(suites.__file__).parent / "cost" / "test_stages.py"
WHOLE, CROPPED = ((64, 48), "tiny"), ((1280, 640), CROPS)
READ_TOKENS = 3

CHECKPOINT = "synthetic:tiny"

Weighed = dict[str, Comparison]
Weigh = Callable[..., Weighed]


# The engine with one needless or missing computation each; its outputs are right in all but the last.


class ClipTwice(EngineSubject):
    """Runs all views through CLIP twice."""

    def __init__(self, engine: Engine[Any]) -> None:
        super().__init__(engine)
        once = engine.pipeline.encode

        def twice(stage: str, *given: Tensor) -> Tensor:
            if stage == "clip":
                once(stage, *given)
            return once(stage, *given)

        engine.pipeline.encode = twice  # type: ignore[method-assign]


class PromptAgain(EngineSubject):
    """Computes the prompt and all that is written again in each step."""

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        self.given, self.features = Inputs(**inputs), vision_fusion
        return super().prefill(inputs, vision_fusion)

    def step(self, state: Any, token: int) -> Tensor:
        given = self.given
        self.given = replace(
            given,
            input_ids=torch.cat([given.input_ids, torch.tensor([[token]])], dim=1),
            images_seq_mask=torch.cat([given.images_seq_mask, torch.tensor([[False]])], dim=1),
        )
        again = self.engine.pipeline.prefill_with(self.given, self.features)
        state.cache, state.logits = again.cache, again.logits
        return again.logits[0]


class Closed(PromptAgain):
    """A :class:`PromptAgain` without modules."""

    module = None  # type: ignore[assignment]


def clip_twice(setup: Setup) -> ClipTwice:
    """Load a :class:`ClipTwice` as the suites do."""
    return ClipTwice(Engine.from_checkpoint(setup.checkpoint))


@pytest.fixture
def fresh() -> Engine[Any]:
    """Load an engine that a test may change."""
    return Engine.from_checkpoint(CHECKPOINT)


@pytest.fixture
def weigh(tmp_path: Path) -> Weigh:
    """Return a function that makes all comparisons of the suite for one page."""

    def weighed(subject: EngineSubject, page: Any = WHOLE) -> Weighed:
        engine = subject.engine
        scales = Scales(subject, model_of(engine).arch, engine.tokenizer, Drawn(tmp_path))
        with torch.no_grad():
            counted = scales.begin(page[0], "free", page[1])
            found = [*vision_of(scales.arch, counted), prefill_of(scales.arch, counted)]
            with scales.counting() as step:
                subject.step(counted.state, 5)
            found.append(step_of(scales.arch, counted.work, counted.work.prompt_tokens + 1, step))
            work = scales.work(page[0], "free", page[1], READ_TOKENS)
            found.append(page_of(scales.arch, work, scales.read(work, "free")))
        return {one.stage: one for one in found}

    return weighed


def wrong(found: Weighed) -> dict[str, str]:
    return {stage: "\n".join([one.measured, *one.details]) for stage, one in found.items() if not one.passes}


@pytest.mark.parametrize(("engine", "page"), [("readable", CROPPED), ("fast", WHOLE)])
def test_the_engine_passes(weigh: Weigh, engine: Any, page: Any) -> None:
    """The steps of the fast one go past the modules that its prefill is seen in."""
    found = weigh(EngineSubject(Engine.from_checkpoint(CHECKPOINT, engine=engine)), page)
    assert {one.verdict for one in found.values()} == {Verdict.MATCH}
    assert [*found] == ["sam", "clip", "projector", "vision", "prefill", "decode", "read"]


@pytest.mark.parametrize(
    ("subject", "stages", "stage", "layer"),
    [
        (ClipTwice, ["clip", "read"], "clip", "vision_model.transformer.layers.0.self_attn in 2 calls"),
        (PromptAgain, ["decode"], "decode", "layers.0.self_attn in 1 call"),  # read goes another way
    ],
)
def test_needless_work_is_named_by_its_stage_and_layer(
    fresh: Engine[Any], weigh: Weigh, subject: type[EngineSubject], stages: list[str], stage: str, layer: str
) -> None:
    found = wrong(weigh(subject(fresh)))
    assert [*found] == stages
    assert found[stage].startswith(f"model.{layer}")
    assert subject is not ClipTwice or found["clip"].count(", 2 times as much; by addmm ") == 4


def test_where_no_modules_are_shown_the_stage_is_named(fresh: Engine[Any], weigh: Weigh) -> None:
    found = weigh(Closed(fresh))
    assert [*found] == ["vision", "prefill", "decode", "read"]
    assert [*wrong(found)] == ["decode"]
    said = r"in no module that is shown: [\d,]+, expected [\d,]+, [\d.]+ times as much; by .*mm [\d,]+"
    assert re.fullmatch(said, wrong(found)["decode"])


def test_the_suite_names_the_layer(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(
        f"{SUITE}::test_preset[tiny]",
        f"--dsocr-checkpoint={CHECKPOINT}",
        f"--dsocr-subject={__name__}:clip_twice",
        "--dsocr-reference=engine",
    )
    result.assert_outcomes(failed=1)
    layer = "model.vision_model.transformer.layers.0.self_attn"
    result.stdout.fnmatch_lines([f"WRONG *clip/FLOPs: {layer} in 2 calls: 6,423,040, expected 3,211,520,"])
