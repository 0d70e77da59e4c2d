"""The figures in ``docs/cost.md`` are what is computed."""

from __future__ import annotations

import statistics
from dataclasses import replace
from functools import cache

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.cost.cost import UNCOUNTED, as_counted
from pytest_dsocr.cost.decoder import VENDOR
from pytest_dsocr.cost.model import stages_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.families import DEFAULT, OF_VIEWS
from pytest_dsocr.pages.page_list import shipped
from tests.markdown import blocks, table, text_of

DOC = "docs/cost.md"
FULL = Architecture()
PAGE = Workload((1400, 1400), DEFAULT.presets["gundam"], text_tokens=10, generated_tokens=65)
WAYS = (("eager", "cpu"), ("sdpa", "cpu"), ("flash_attention_2", "cuda"))


def giga(flops: float) -> str:
    return f"{flops / 1e9:,.1f}"


def test_stages() -> None:
    rows = [
        [
            f"`{name}`",
            giga(stage.cost.matrix_flops),
            *(giga(as_counted(stage, *way)) for way in WAYS),
            f"{stage.cost.bytes / 1e9:.2f}",
        ]
        for name, stage in stages_of(FULL, PAGE).items()
    ]
    assert table(DOC, "stage") == rows
    assert f"a prompt of {PAGE.prompt_tokens} tokens" in text_of(DOC)


def test_kernels() -> None:
    assert [row[0].strip("`") for row in table(DOC, "kernel")] == [*UNCOUNTED.values()]


def test_the_vendors_way() -> None:
    stage, session = stages_of(FULL, PAGE, way=VENDOR)["prefill"], stages_of(FULL, PAGE)["prefill"]
    assert f"its prefill costs {giga(stage.cost.matrix_flops)} GFLOP" in text_of(DOC)
    angles = [name for name in session.layers if name.endswith("self_attn")]
    more = sum(stage.layers[name].matrix_flops - session.layers[name].matrix_flops for name in angles)
    assert more > 0
    assert f"in each layer again: {giga(more)} GFLOP" in text_of(DOC)


def test_shipped_pages() -> None:
    found = sorted(_vision_tflop(load_image(page).size) for page in shipped("all"))
    said = f"takes from {found[0]:.2f} to {found[-1]:.2f} TFLOP in Gundam, {statistics.median(found):.2f} in the median"
    assert said in " ".join(text_of(DOC).split())


@cache
def _vision_tflop(page_px: tuple[int, int]) -> float:
    stages = stages_of(FULL, replace(PAGE, page_px=page_px))
    return sum(stages[stage].cost.matrix_flops for stage in OF_VIEWS) / 1e12


def test_the_example_runs() -> None:
    [block] = blocks(DOC, "python")
    told: list[tuple[object, ...]] = []
    exec(compile(block, DOC, "exec"), {"print": lambda *words: told.append(words)})
    assert told == [(name, one.cost.matrix_flops, one.cost.bytes) for name, one in stages_of(FULL, PAGE).items()]
