"""The figures in ``docs/cost.md`` are what is computed."""

from __future__ import annotations

import statistics
from dataclasses import replace
from functools import cache

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.cost import encoders
from pytest_dsocr.cost.cost import UNCOUNTED, as_counted, total
from pytest_dsocr.cost.decoder import VENDOR
from pytest_dsocr.cost.encoders import vision
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
PROJECTED, LAYERS = 577, 4
"""What the earlier model had."""


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


def test_what_an_earlier_model_left_out() -> None:
    ours = {name: stage.cost.matrix_flops for name, stage in stages_of(FULL, PAGE).items()}
    one_view = vision(FULL, PAGE.preset.view_size, 1, PAGE.dtype)
    shallow = replace(FULL.clip, layers=LAYERS)
    theirs = {
        "sam": total(one_view["sam"].values()).matrix_flops,
        "clip": total(encoders.clip_layers(shallow, 16, 1, 2).values()).matrix_flops,
        "projector": 2 * PROJECTED * FULL.projector_input * FULL.decoder.hidden_size,
    }
    features = 9 * 10**2 + 16**2
    assert ours["projector"] == 2 * features * FULL.projector_input * FULL.decoder.hidden_size
    found = {row[0]: row[1:] for row in table(DOC, "figure")}
    assert found == {
        "views": ["1 of 1024 px", "9 of 640 px, 1 of 1024 px"],
        "SAM, GFLOP": [giga(theirs["sam"]), giga(ours["sam"])],
        "layers of CLIP": [str(LAYERS), str(FULL.clip.layers)],
        "CLIP, GFLOP": [giga(theirs["clip"]), giga(ours["clip"])],
        "projected tokens": [str(PROJECTED), f"{features:,}"],
        "projector, GFLOP": [giga(theirs["projector"]), giga(ours["projector"])],
        "vision, TFLOP": [f"{sum(side[stage] for stage in OF_VIEWS) / 1e12:.2f}" for side in (theirs, ours)],
    }
    missing = 1 - sum(theirs.values()) / sum(ours[stage] for stage in OF_VIEWS)
    assert f"It said {missing:.0%} too little.".replace("%", " %") in text_of(DOC)


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
