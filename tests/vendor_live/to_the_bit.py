"""The engine and the vendor's live code with the same weights, compared to the bit in float32."""

from pathlib import Path
from typing import Any, NamedTuple

import torch

from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.pipeline import pick
from pytest_dsocr.models.spec import FUSION, ModelSpec
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from pytest_dsocr.subjects.engine import EngineStages
from suites.contract.odd_pages import ODD_PAGES
from suites.contract.pages import PAGES, write_page
from tests.vendor_live.conftest import vendor_folder

PAGE_NAMES = sorted({*PAGES, *ODD_PAGES})


class Pair(NamedTuple):
    """The two sides, with the same weights."""

    engine: Engine[Any]
    vendor: VendorRuntime


def load(checkpoint: str, family: ModelSpec) -> Pair:
    return Pair(Engine.from_checkpoint(checkpoint), VendorRuntime.load(vendor_folder(family), checkpoint))


def case_of(page: str, preset: Preset, tokens: int, folder: Path, family: ModelSpec) -> Case:
    """Draw a page of :data:`PAGE_NAMES` into ``folder``, and return its case."""
    path = ODD_PAGES[page].case(page, folder, family).page if page in ODD_PAGES else write_page(page, folder)
    return Case(path, family.prompts["markdown"], preset, tokens, family)


def assert_equal_to_the_bit(engine: Engine[Any], case: Case, expected: ReferenceResult) -> None:
    """Compare inputs, every seam, the logits of the prompt and of each step, and the tokens."""
    inputs = engine.prepare(case.page, prompt=case.prompt, preset=case.preset)
    known = expected.inputs.values or {}
    assert all(torch.equal(tensor, known[name]) for name, tensor in inputs.tensors.items())
    seams = EngineStages(engine).vision(inputs.tensors)
    # All logits, as the vendor computes them, whose product for one row rounds otherwise.
    state = engine.pipeline.prefill_with(inputs, seams.get(FUSION), all_logits=True)
    seams = {**seams, "prefill": state.logits[0]}
    of_vendor = {name: seam.values for name, seam in expected.seams.items() if seam.values is not None}
    assert {*seams} == {*of_vendor}
    assert [name for name, tensor in seams.items() if not torch.equal(tensor, of_vendor[name])] == []
    ban, chosen = engine.policy.ban(inputs.input_ids[0].tolist()), list[int]()
    for k, step in enumerate(expected.steps):
        if k:
            engine.decode_step(state, chosen[-1])
        assert state.logits[0].topk(len(step.best.ids)).values.tolist() == [*step.best.logits], f"step {k}"
        chosen += pick(state.logits, [ban.banned()])
        ban.push(chosen[-1])
    assert tuple(chosen) == expected.token_ids
