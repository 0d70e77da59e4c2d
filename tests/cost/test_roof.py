"""The roof over one page: the full-size model on a page that is shipped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_dsocr.contract.presets import PRESETS
from pytest_dsocr.cost.model import decode_step, stages_of
from pytest_dsocr.cost.roof import VISION, Roof
from pytest_dsocr.cost.roofline import Limit, bound, devices
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.places import SYNTHETIC

FULL, H200 = SYNTHETIC["full"], devices()["h200"]
PAGE = Workload((1140, 1101), PRESETS["gundam"], 36, 64)


@pytest.fixture(scope="module")
def roof() -> Roof:
    return Roof.of(FULL, PAGE, H200)


def test_the_page_is_the_sum_of_what_comes_one_after_the_other(roof: Roof) -> None:
    of = roof.bounds
    assert of["vision"].ms == pytest.approx(sum(of[name].ms for name in VISION))
    assert of["first_token"].ms == pytest.approx(of["vision"].ms + of["prefill"].ms)
    steps = sum(bound(decode_step(FULL, PAGE, PAGE.prompt_tokens + k).cost, H200, "bfloat16").ms for k in range(1, 64))
    assert of["page"].ms == pytest.approx(of["first_token"].ms + steps)
    assert of["decode"].ms == pytest.approx(steps / 63), "the step in the middle is the mean"


def test_each_stage_has_the_roof_of_its_own_cost(roof: Roof) -> None:
    for name, stage in stages_of(FULL, PAGE).items():
        if name != "decode":
            assert roof.bounds[name] == bound(stage.cost, H200, "bfloat16")


def test_vision_computes_and_a_step_reads_weights(roof: Roof) -> None:
    assert {name: roof.bounds[name].limit for name in ("sam", "clip", "prefill", "decode")} == {
        "sam": Limit.COMPUTE,
        "clip": Limit.COMPUTE,
        "prefill": Limit.MEMORY,  # 729 tokens are too few for the weights of all experts
        "decode": Limit.MEMORY,
    }


def test_what_has_no_arithmetic_has_no_roof(roof: Roof) -> None:
    assert not {"tokenizer", "postprocess", "decode.early"} & {*roof.bounds}


def test_the_prefill_is_told_in_steps(roof: Roof) -> None:
    assert roof.prefill_in_steps == pytest.approx(roof.bounds["prefill"].ms / roof.bounds["decode"].ms)
    assert 4 < (roof.prefill_in_steps or 0) < 6, "it reads all 64 experts where a step reads 6"
    alone = Roof.of(FULL, replace(PAGE, generated_tokens=1), H200)
    assert alone.prefill_in_steps is None
    assert alone.bounds["page"] == alone.bounds["first_token"]


def test_another_dtype_has_another_roof() -> None:
    single = Roof.of(FULL, replace(PAGE, dtype="float32"), H200)
    assert single.told == "NVIDIA H200 SXM, 67 TFLOP/s in float32, 4800 GB/s"
    assert single.bounds["decode"].ms == pytest.approx(2 * Roof.of(FULL, PAGE, H200).bounds["decode"].ms, rel=0.01)
