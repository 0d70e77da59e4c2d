"""The arithmetic of small models: parameters, and the FLOPs of an engine in each attention."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from pytest_dsocr.contract.policy import CachePolicy
from pytest_dsocr.cost.decoder import VENDOR, expected_experts
from pytest_dsocr.cost.model import parameters, stages_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from suites.checkpoint.made import architecture
from tests.cost.full_size import counted
from tests.engine.written import synthetic_engine
from tests.sizes import SYNTHETIC


@pytest.mark.parametrize("checkpoint", ["mini", "synthetic:tiny", "deepseek_ocr2:synthetic:tiny"])
def test_each_modules_parameters_are_those_of_the_model(checkpoint: str) -> None:
    found = Counter[str]()
    computed = parameters(resolve(checkpoint).architecture)
    for name, tensor in model_of(Engine.from_checkpoint(checkpoint)).state_dict().items():
        module = name
        while module not in computed:
            module = module.rpartition(".")[0]
        found[module] += tensor.numel()
    assert found == computed
    assert sum(parameters(Architecture.published(DEEPSEEK_OCR)).values()) == 3_336_106_240, "as published"


PAGE = Image.new("RGB", (64, 48), "white")
TOKENS = 4


@pytest.mark.parametrize(("attention", "ring"), [("eager", None), ("sdpa", None), ("eager", 1), ("eager", 2)])
def test_products_of_a_page(attention: str, ring: int | None) -> None:
    """In each module; and of them what torch's counter sees on the CPU."""
    family, shared = replace(DEEPSEEK_OCR, cache=CachePolicy(ring)), 2  # half as many keys and values as queries
    engine = synthetic_engine(family, attention=attention, num_key_value_heads=shared)
    counted(engine, PAGE, "tiny", TOKENS, "cpu", dtype="float32", attention=attention)
    modules = model_of(engine).modules()
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in modules), "left as it was"


@pytest.mark.dsocr_slow
def test_the_vendors_stages_cost_what_was_counted_of_its_code() -> None:
    """On shipped pages, on drawn ones in every preset, and in the second checkpoint; its gate leaves vision out."""
    cases = json.loads(Path(__file__).with_name("vendor_flops.json").read_text(encoding="utf-8"))["cases"]
    assert len(cases) == 65
    for case in cases:
        name = case["checkpoint"]
        arch = architecture(DEEPSEEK_OCR) if name == "awkward" else resolve(name).architecture
        preset = DEEPSEEK_OCR.preset(case["preset"])
        work = Workload(tuple(case["page_px"]), preset, case["text_tokens"], generated_tokens=2)
        computed = stages_of(arch, work, way=VENDOR)
        assert {name: computed[name].cost.matrix_flops for name in case["flops"]} == case["flops"], case


@pytest.mark.parametrize(("tokens", "bounds"), [(0, (0, 0)), (8, (6, 48)), (1213, (6, 64))])
def test_expected_experts_are_the_mean_of_many_draws_and_lie_between_the_bounds(
    tokens: int, bounds: tuple[int, int]
) -> None:
    config, draws = SYNTHETIC["full"].decoder, 4000
    found = expected_experts(config, tokens)
    assert bounds[0] <= round(found, 9) <= bounds[1]
    if tokens == 8:
        torch.manual_seed(0)
        chosen = torch.rand(draws, tokens, config.n_routed_experts).topk(config.num_experts_per_tok).indices.flatten(1)
        distinct = torch.zeros(draws, config.n_routed_experts).scatter_(1, chosen, 1).sum() / draws
        assert found == pytest.approx(float(distinct), rel=0.005)
