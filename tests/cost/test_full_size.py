"""The arithmetic at the vendor's dimensions, layer by layer: for each grid, preset and attention."""

from __future__ import annotations

import pytest

from pytest_dsocr.cost.cost import as_counted, by_module
from pytest_dsocr.cost.decoder import Way
from pytest_dsocr.cost.model import cache_bytes, decode_step, parameters, stages_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.families import DEFAULT, OF_VIEWS
from tests.cost.full_size import FULL, apart, decode, model, vision

WHOLE_PAGE = "gundam, 1400 px"
GRIDS = [*((columns, rows) for columns in (1, 2, 3) for rows in (1, 2, 3)), (1, 9), (9, 1), (2, 4)]
PAGES = {
    **{
        f"gundam {columns}x{rows}": ((DEFAULT.tiling.crop_px * columns, DEFAULT.tiling.crop_px * rows), "gundam")
        for columns, rows in GRIDS
    },
    **{name: ((900, 1200), name) for name, preset in DEFAULT.presets.items() if not preset.crop},
    WHOLE_PAGE: ((1400, 1400), "gundam"),
}
TEXT_TOKENS, TOKENS = 10, 65


@pytest.fixture(scope="module")
def full() -> DeepseekOCR:
    return model()


def work_of(page: str, attention: str = "eager") -> Workload:
    size, preset = PAGES[page]
    return Workload(size, DEFAULT.presets[preset], TEXT_TOKENS, TOKENS, attention=attention)


@pytest.mark.parametrize("page", PAGES)
def test_each_layer_of_vision_is_as_counted(full: DeepseekOCR, page: str) -> None:
    stages = stages_of(FULL, work_of(page))
    found = vision(full, work_of(page))
    assert not apart(by_module(stages[stage] for stage in OF_VIEWS), found)
    assert (
        found.algorithmic == found.as_counted == sum(as_counted(stages[stage], "eager", "meta") for stage in OF_VIEWS)
    )
    assert not found.unknown


@pytest.mark.parametrize(("page", "attention"), [(WHOLE_PAGE, "eager"), (WHOLE_PAGE, "sdpa"), ("tiny", "eager")])
def test_each_layer_of_the_decoder_and_the_cache_are_as_counted(full: DeepseekOCR, page: str, attention: str) -> None:
    work = work_of(page, attention)
    of, stages = (full if attention == "eager" else model(attention)), stages_of(FULL, work)
    cache = of.new_cache()
    prefill = decode(of, cache, work.prompt_tokens)
    assert not apart(stages["prefill"].layers, prefill)
    assert prefill.as_counted == as_counted(stages["prefill"], attention, "meta")
    steps = [decode_step(FULL, work, work.prompt_tokens + step) for step in range(1, TOKENS)]
    assert not apart(steps[0].layers, decode(of, cache, 1))
    decode(of, cache, TOKENS - 3)
    assert not apart(steps[-1].layers, decode(of, cache, 1))
    assert cache.length == work.prompt_tokens + work.decode_steps
    assert cache.bytes_per_token * cache.length == cache_bytes(FULL, work)
    assert by_module(steps) == stages["decode"].layers


def test_logits_of_all_positions_cost_the_head_again_for_each() -> None:
    work = work_of(WHOLE_PAGE)
    last, all_of_them = (stages_of(FULL, work, way=Way(all_logits=one))["prefill"] for one in (False, True))
    head = 2 * FULL.decoder.hidden_size * FULL.decoder.vocab_size
    assert all_of_them.cost.matrix_flops - last.cost.matrix_flops == head * (work.prompt_tokens - 1)


def test_parameters_are_those_of_the_model(full: DeepseekOCR) -> None:
    assert sum(parameters(FULL).values()) == sum(one.numel() for one in full.parameters()) == 3_336_106_240
