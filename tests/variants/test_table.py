"""The list of variants is whole, and each of them computes in another way than the engine."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_dsocr.engine.stages import ON_HOST
from pytest_dsocr.models.deepseek_ocr import FAMILY
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.case import make_case
from pytest_dsocr.records.config import Setup
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.loading import load_subject
from suites.contract.asked import own_preset
from tests.variants.settings import set_to
from tests.variants.table import VARIANTS, Listed, why_not

MODULES = [
    import_module(f"tests.variants.{path.stem}")
    for path in Path(__file__).parent.glob("[a-z]*.py")
    if not path.stem.startswith("test_")
]
ON_CPU = [name for name, listed in VARIANTS.items() if not {"gpu", "compiler"} & {*listed.needs}]
THE_SAME = ("copy", "reversed")
"""Variants that differ in their class or in the order of pages alone."""
SETUP = Setup("synthetic:tiny", "cpu", "bfloat16")
STEPS = 3
PRESET = own_preset("own", 640, 640, crop=False)
"""A preset with more tokens than a variant takes at once."""
CROPS, PAGE_PX, CROP_PX = 3, 128, 64
"""Small views of noise, which vision takes like those of a page."""


@pytest.fixture(scope="module")
def of_engine() -> Mapping[str, Any]:
    """Return how the engine computes."""
    return computed(load_subject("engine", SETUP))


def test_every_factory_is_listed() -> None:
    factories = {
        f"{module.__name__}:{name}"
        for module in MODULES
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and [*_parameters(value)] == ["setup"]
    }
    assert factories == {listed.subject for listed in VARIANTS.values()} - {"engine:fast"}


def test_a_need_that_is_not_met_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.variants.table.find_spec", lambda _: None)
    assert "GPU" in why_not(VARIANTS["tf32"], "cpu")
    assert "flash-attn" in why_not(VARIANTS["flash_decoder"], "cuda:1")
    assert "triton" in why_not(VARIANTS["compiled"], "cuda")
    assert why_not(VARIANTS["tf32"], "cuda") == why_not(Listed("engine:fast", "it is the engine"), "cpu") == ""


@pytest.mark.parametrize("name", ON_CPU)
def test_it_computes_in_another_way(name: str, of_engine: Mapping[str, Any]) -> None:
    """Compare the calls of all modules in their order, every seam and logit to the bit, and the cache's layout."""
    found = computed(load_subject(VARIANTS[name].subject, SETUP))
    different = [what for what, value in found.items() if not _equal(value, of_engine[what])]
    assert bool(different) is (name not in THE_SAME)


@pytest.mark.parametrize("name", ["row_of_four", "paged_cache"])
def test_it_prefills_another_model(name: str) -> None:
    """Make each variant of a model with other presets and another encoder, and give it a page."""
    subject: Any = load_subject(VARIANTS[name].subject, replace(SETUP, checkpoint="deepseek_ocr2:synthetic:tiny"))
    family = subject.engine.family
    page, *_ = shipped("dev-3")
    inputs = subject.inputs(page, prompt=family.a_prompt, preset=family.quickest)
    with torch.no_grad():
        state = subject.prefill(inputs, subject.vision(inputs)["vision_fusion"])
    assert bool(state.logits.isfinite().all())


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("reduced_precision_on", "allow_bf16_reduced_precision_reduction", True),
        ("reduced_precision_off", "allow_bf16_reduced_precision_reduction", False),
        ("tf32", "allow_tf32", True),
    ],
)
def test_a_setting_holds_in_its_stages_only(name: str, setting: str, value: bool) -> None:
    matmul, seen = torch.backends.cuda.matmul, list[Any]()

    @contextmanager
    def stage(stage_name: str) -> Iterator[None]:
        seen.extend([] if stage_name in ON_HOST else [getattr(matmul, setting)])
        yield

    subject: Any = load_subject(VARIANTS[name].subject, SETUP)
    with set_to(matmul, setting, not value), subject.watched(stage):
        computed(subject)
        assert getattr(matmul, setting) is not value
    assert {*seen} == {value}


def computed(subject: Any) -> dict[str, Any]:
    """Return the calls of all modules, the tensors, and the strides of the cache, for small views and a prompt."""
    page, *_ = shipped("dev-3")
    case = make_case(page, "markdown", PRESET, family=FAMILY)
    noise = partial(torch.randn, generator=torch.Generator().manual_seed(0))
    calls, handles = list[Any](), list[Any]()
    assert isinstance(subject, EngineSubject)
    model: Any = subject.engine.model
    inputs = subject.inputs(page, prompt=case.prompt, preset=case.preset)
    views = {"images_ori": noise(1, 3, PAGE_PX, PAGE_PX), "images_crop": noise(CROPS, 3, CROP_PX, CROP_PX)}
    views |= {"images_spatial_crop": torch.tensor([[CROPS, 1]])}
    features = noise(int(inputs["images_seq_mask"].sum()), model.arch.decoder.hidden_size).to(model.dtype)
    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(lambda *given, name=name: calls.append((name, _shape(given[2])))))
    with torch.no_grad():
        seams = subject.vision({**inputs, **views})
        state = subject.prefill(inputs, features)
        logits = [state.logits.clone(), *(subject.step(state, token).clone() for token in range(STEPS))]
        strides = [state.cache.keys(0).stride(), state.cache.values(0).stride()]
    for handle in handles:
        handle.remove()
    return {"calls": calls, **seams, **{f"logits {at}": one for at, one in enumerate(logits)}, "strides": strides}


def _shape(output: Any) -> Any:
    return tuple(output.shape) if isinstance(output, Tensor) else None


def _equal(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, Tensor) else bool(one == other)


def _parameters(function: Any) -> Iterator[str]:
    yield from inspect.signature(function).parameters
