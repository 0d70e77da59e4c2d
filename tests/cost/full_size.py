"""Counted FLOPs held to computed ones."""

from typing import Any

from PIL import Image
from torch import nn

from pytest_dsocr.cost.cost import WHOLE, as_counted, by_module, differences, with_those_around
from pytest_dsocr.cost.model import parameters, stages_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.model import EngineModel
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.timing.probe.flops import Flops, counted_flops

TOKEN = 5


def shown(of: EngineModel) -> dict[str, nn.Module]:
    """Return the modules that compute something, and those that contain them."""
    names = with_those_around(parameters(of.arch))
    return {name: module for name, module in of.named_modules() if name in names}


def work_of(engine: Engine[Any], page_px: tuple[int, int], preset: str, tokens: int, **how: Any) -> Workload:
    """Return the workload of a page that is read with the prompt ``free``."""
    how |= {"generated_tokens": tokens, "family": model_of(engine).family}
    return Workload.of_prompt(page_px, "free", preset, engine.tokenizer, **how)


def counted(engine: Engine[Any], page: Image.Image, preset: str, tokens: int, device: str, **how: Any) -> Flops:
    """Count a page's operations up to some tokens, and assert that each module has the calculated number."""
    work = work_of(engine, page.size, preset, tokens, **how)
    stages = stages_of(model_of(engine).arch, work)
    with counted_flops(shown(model_of(engine))) as found:
        state = engine.prefill(engine.prepare(page, prompt="free", preset=preset))
        for _ in range(work.decode_steps):
            engine.decode_step(state, TOKEN)
    computed = by_module(stages.values())
    apart = differences(computed, {WHOLE: found.operators, **found.modules}, found.calls)
    assert [str(one) for one in apart] == []
    assert found.as_counted == sum(as_counted(one, work.attention, device) for one in stages.values())
    assert not found.unknown
    return found
