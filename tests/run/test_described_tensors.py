"""Ports with mistakes that are in no catalogue: the run describes what they did, and says nothing that is not so."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.measured import NOT_MEASURED
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.explainer import Explainer
from pytest_dsocr.explain.mistake import Changes, blocks_of, model_of
from pytest_dsocr.layers.attention import repeat_heads
from pytest_dsocr.layers.experts import MixtureOfExperts
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.spec import PREFILL
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.config import Level, Setup
from pytest_dsocr.records.inside import InnerCall, Inside
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.run.described import noting_errors
from pytest_dsocr.run.described_tensors import _seen, describe_case
from pytest_dsocr.run.further import further_causes
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.subjects.calls import current
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.follow import run_teacher_forced
from suites.contract.pages import write_page
from tests.describe.real import random
from tests.subjects.seen import judged, seen
from tests.subjects.spoilt import only

SETUP = Setup("synthetic:tiny")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    page = write_page("portrait", tmp_path_factory.mktemp("pages"))
    return make_case(page, "free", "tiny", 2, family=DEEPSEEK_OCR)


@pytest.fixture(scope="module")
def expected(tiny: Engine[Any], case: Case) -> ReferenceResult:
    """Return a recording, with the blocks' tensors and without values."""
    right = seen(tiny, case)
    return replace(right, seams=run_teacher_forced(EngineSubject(tiny), case, right).seams)


@pytest.fixture(scope="module")
def explainer() -> Iterator[Explainer]:
    made = Explainer(SETUP, 4.0)
    yield made
    made.close()


class Port(EngineSubject):
    """An engine that makes other inputs, or places its features elsewhere."""

    def __init__(self, engine: Engine[Any]) -> None:
        super().__init__(engine)
        self.of_inputs: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict
        self.of_features: Callable[[Tensor], Tensor] = torch.Tensor.clone

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        return self.of_inputs(super().inputs(page, prompt=prompt, preset=preset))

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        return super().prefill(inputs, None if vision_fusion is None else self.of_features(vision_fusion))


def class_token_last(port: Port, changes: Changes) -> None:
    embeddings = model_of(port.engine).get_submodule("model.vision_model.embeddings")
    changes.around(embeddings, lambda run, x: run(x).roll(-1, 1))


def features_one_off(port: Port, changes: Changes) -> None:
    port.of_features = lambda features: features.roll(1, 0)


def blue_first(port: Port, changes: Changes) -> None:
    port.of_inputs = lambda tensors: {**tensors, "images_ori": tensors["images_ori"].flip(1)}


def positions_turned(port: Port, changes: Changes) -> None:
    positions = model_of(port.engine).get_parameter("model.sam_model.pos_embed")
    changes.weight(positions, positions.transpose(1, 2))


def first_norm_not_loaded(port: Port, changes: Changes) -> None:
    norm = model_of(port.engine).get_submodule("model.vision_model.pre_layrnorm")
    changes.forward(norm, lambda x: F.layer_norm(x, x.shape[-1:], eps=1e-5))


def half_of_a_block(port: Port, changes: Changes) -> None:
    block = model_of(port.engine).get_submodule("model.vision_model.transformer.layers.1")
    changes.around(block, lambda run, x: x + 0.5 * (run(x) - x))


def no_newline(port: Port, changes: Changes) -> None:
    newline = model_of(port.engine).get_parameter("model.image_newline")
    changes.weight(newline, torch.zeros_like(newline))


def logits_halved(port: Port, changes: Changes) -> None:
    head = model_of(port.engine).get_parameter("lm_head.weight")
    changes.weight(head, head / 2)


def noisy_block(port: Port, changes: Changes) -> None:
    block = model_of(port.engine).get_submodule("model.vision_model.transformer.layers.1")
    changes.around(block, lambda run, x: run(x) + 0.1 * random(*x.shape))


def no_first_token(port: Port, changes: Changes) -> None:
    embeddings = model_of(port.engine).get_parameter("model.embed_tokens.weight")
    values = embeddings.data.clone()
    values[port.engine.tokenizer.special.bos] = 0
    changes.weight(embeddings, values)


def experts_exchanged(port: Port, changes: Changes) -> None:
    mlp = model_of(port.engine).get_submodule("model.layers.1.mlp")
    assert isinstance(mlp, MixtureOfExperts)
    experts = [*mlp.experts]
    experts[3], experts[5] = experts[5], experts[3]
    changes.set(mlp, "experts", nn.ModuleList(experts))


def keys_longer(port: Port, changes: Changes) -> None:
    keys = model_of(port.engine).get_parameter("model.layers.1.self_attn.k_proj.weight")
    changes.weight(keys, keys * 1.5)


Planted = Callable[[Port, Changes], None]
INPUT = "the block itself is right, and its input is wrong: "
PLANTED: Mapping[Planted, tuple[str, str, str]] = {
    class_token_last: ("clip.page/0", "rolled", INPUT + "the first of 65 positions comes last"),
    features_one_off: ("prefill/0", "shifted", INPUT + "token 1 holds the expected token 73; tokens 2 to 73 hold"),
    blue_first: ("images_ori", "colours", "red and blue are exchanged"),
    positions_turned: ("sam.page/0", "inside", "the positions are added with rows and columns exchanged"),
    first_norm_not_loaded: (
        "clip.page/0",
        "inside",
        "the output of `pre_layrnorm` is normed without weights and biases",
    ),
    half_of_a_block: ("clip.page/1", "update", "the block adds 0.5 times its update"),
    no_newline: ("vision_fusion", "zero", "the ends of all lines, are zero"),
    experts_exchanged: ("prefill/1", "experts", "only the 3 tokens that are routed to experts 3 and 5 differ"),
    keys_longer: (
        "prefill/1",
        "inside",
        "the output of `self_attn.k_proj` is wrong, though computed from right values",
    ),
    no_first_token: ("prefill/0", "zero", INPUT + "token 0 of 84, the tokens before the image, is zero"),
    logits_halved: ("prefill", "scaled", "every value is the expected one times 0.5"),
}


def described(
    plant: Planted, engine: Engine[Any], case: Case, expected: ReferenceResult, resources: RunResources, level: Level
) -> tuple[tuple[str, Description], ...]:
    """Return the descriptions of a port with a mistake."""
    with Changes() as changes:
        plant(port := Port(engine), changes)
        subject = only(port, level)
        return describe_case(judged(subject, case, expected), subject, resources)


@pytest.mark.parametrize("plant", PLANTED)
def test_a_mistake_of_a_port_is_described(
    plant: Planted, tiny: Engine[Any], case: Case, expected: ReferenceResult, explainer: Explainer
) -> None:
    what, kind, words = PLANTED[plant]
    [(name, found)] = described(plant, tiny, case, expected, RunResources(SETUP, explainer), Level.MODULES)
    assert (name, found.kind, found.explains) == (what, kind, True), found.text
    assert words in found.text


def test_without_modules_the_stage_is_described(
    tiny: Engine[Any], case: Case, expected: ReferenceResult, explainer: Explainer
) -> None:
    [(name, found)] = described(class_token_last, tiny, case, expected, RunResources(SETUP, explainer), Level.STAGES)
    assert (name, found.kind, found.explains) == ("clip.page", "rolled", True)
    resources = RunResources(SETUP, explainer)
    assert described(class_token_last, tiny, case, expected, resources, Level.INPUTS) == ()
    [(name, found)] = described(blue_first, tiny, case, expected, resources, Level.INPUTS)
    assert (name, found.kind) == ("images_ori", "colours")


def test_any_other_mistake_is_measured_and_not_named(
    tiny: Engine[Any], case: Case, expected: ReferenceResult, explainer: Explainer
) -> None:
    resources = RunResources(SETUP, explainer)
    [(name, found)] = described(noisy_block, tiny, case, expected, resources, Level.MODULES)
    assert (name, found.kind, found.explains) == ("clip.page/1", "located", False)
    assert described(noisy_block, tiny, case, expected, resources, Level.MODULES) == (), "once in a stage"


def test_nothing_is_said_if_the_engine_disagrees_with_the_reference_or_nothing_is_explained(
    tiny: Engine[Any], case: Case, expected: ReferenceResult, explainer: Explainer
) -> None:
    what = "clip.page/0"
    other = replace(expected.seams[what], sha256="", sketch=2 * expected.seams[what].sketch)
    wrong = replace(expected, seams={**expected.seams, what: other})
    assert described(class_token_last, tiny, case, wrong, RunResources(SETUP, explainer), Level.MODULES) == ()
    off = RunResources(SETUP, Explainer(SETUP, 0))
    assert described(class_token_last, tiny, case, expected, off, Level.MODULES) == ()
    assert describe_case(judged(Port(tiny), case, expected), Port(tiny), RunResources(SETUP, explainer)) == ()


def test_an_error_of_one_describer_is_noted_and_the_others_go_on(
    tiny: Engine[Any], case: Case, expected: ReferenceResult, explainer: Explainer
) -> None:
    """Tensor 99 of the calls inside does not exist, so the describer of these calls fails in the other process."""
    with Changes() as changes:
        half_of_a_block(port := Port(tiny), changes)
        report = judged(port, case, expected)
        seen = _seen("clip.page/1", port, report)
    assert seen is not None
    [right] = explainer.describe(report, seen)
    broken = seen._replace(inside=Inside(seen.inside.tensors, (InnerCall("mlp", 99, 99),)))
    with noting_errors():
        found = explainer.describe(report, broken)
    [line] = [one for one in current().notes if one.startswith(NOT_MEASURED)]
    current().notes.remove(line)
    assert found == (right,)
    assert "inside.of_inside: IndexError" in line
    with pytest.raises(RuntimeError, match=r"inside\.of_inside"):  # as in any test of this project
        explainer.describe(report, broken)


def test_what_is_wrong_besides_the_first_is_described_without_its_input(
    tiny: Engine[Any], case: Case, expected: ReferenceResult, explainer: Explainer
) -> None:
    """The first cause, which nothing explains, is followed once for each stage of a run."""
    resources = RunResources(SETUP, explainer)
    with Changes() as changes:
        for plant in (half_of_a_block, no_newline):
            plant(port := Port(tiny), changes)
        report = judged(port, case, expected)
        [found] = further_causes(report, port, resources)
        assert further_causes(report, port, resources) == ()
    assert found.description is not None
    assert (found.what, found.description.kind, found.description.explains) == ("vision_fusion", "zero", True)
    assert INPUT not in found.description.text


def padded_steps(port: Port, changes: Changes) -> None:
    """Have steps attend to keys of score 0 and value 0 besides their own, up to a multiple of 16."""

    def attend(usual: Any, q: Tensor, k: Tensor, v: Tensor, lengths: Any) -> Tensor:
        out: Tensor
        if q.shape[2] > 1:
            out = usual(q, k, v, lengths)
            return out
        k, v = (F.pad(repeat_heads(one, q), (0, 0, 0, -one.shape[2] % 16)) for one in (k, v))
        out = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return out

    for block in blocks_of(port.engine, PREFILL):
        changes.set(block.self_attn, "attend", partial(attend, block.self_attn.attend))


def test_steps_that_are_wrong_besides_the_features_are_described_from_the_subjects_own_prompt(
    tiny: Engine[Any], case: Case, expected: ReferenceResult, explainer: Explainer
) -> None:
    resources = RunResources(SETUP, explainer)
    with Changes() as changes:
        for plant in (no_newline, padded_steps):
            plant(port := Port(tiny), changes)
        report = judged(port, case, expected)
        alone = replace(report, exchange=replace(report.exchange, alone={"prefill": False}))
        causes = further_causes(alone, port, resources)
    [found] = [one for one in causes if one.what == "logits"]
    assert found.description is not None
    assert "attention in layer 0 is wrong, though its keys and values are right" in found.description.text
    assert "more terms of score 0 and value 0" in found.description.text


def test_steps_after_a_prompt_without_a_known_cause_are_not_said_to_be_wrong(
    tiny: Engine[Any], case: Case, expected: ReferenceResult, explainer: Explainer
) -> None:
    with Changes() as changes:
        keys_longer(port := Port(tiny), changes)
        report = judged(port, case, expected)
        alone = replace(report, exchange=replace(report.exchange, alone={"prefill": False}))
        assert {one.what for one in report.comparisons if not one.passes} >= {"prefill/1", "logits"}
        assert further_causes(alone, port, RunResources(SETUP, explainer)) == ()
