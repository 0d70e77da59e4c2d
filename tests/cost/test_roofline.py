"""The roof over a page: figures that can be checked by hand, the full-size model's, and the devices' peaks."""

from dataclasses import replace

import pytest

from pytest_dsocr.cost.model import decode_step, stages_of
from pytest_dsocr.cost.roofline import LAUNCH_BOUND, Bound, Limit, Roof, bound, device_of_gpu, devices, limit_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.models import VISION
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.timing.baseline import read
from tests.sizes import SYNTHETIC
from tests.timing.made import SHIPPED

FULL, H200 = SYNTHETIC["full"], devices()["h200"]
PAGE = Workload((1140, 1101), DEEPSEEK_OCR.presets["gundam"], 36, 64)


@pytest.mark.parametrize(
    ("roof", "measured_ms", "idle", "limit"),
    [
        (Bound(10.0, 10.0, 4.0), 40.0, 0.8, Limit.LAUNCHES),
        (Bound(10.0, 10.0, 4.0), 40.0, 0.2, Limit.KERNELS),
        (Bound(10.0, 10.0, 4.0), 20.0, 0.2, Limit.COMPUTE),
        (Bound(4.0, 1.0, 4.0), 8.0, 0.0, Limit.MEMORY),
        (Bound(4.0, 1.0, 4.0), 16.0, LAUNCH_BOUND, Limit.MEMORY),
        (Bound(4.0, 1.0, 4.0), 16.1, LAUNCH_BOUND, Limit.KERNELS),
        (Bound(10.0, 10.0, 4.0), 20.1, None, None),
        (Bound(10.0, 10.0, 4.0), 20.0, None, Limit.COMPUTE),
        (Bound(4.0, 1.0, 4.0), 5.0, None, Limit.MEMORY),
    ],
)
def test_what_limits_a_stage_is_said_only_where_it_is_known(
    roof: Bound, measured_ms: float, idle: float | None, limit: Limit | None
) -> None:
    """At half of the roof the device was busy for half of the time at least, whoever counted."""
    assert limit_of(roof, measured_ms, idle) is limit


def test_a_page_is_the_sum_of_what_comes_one_after_the_other() -> None:
    of = Roof.of(FULL, PAGE, H200).bounds
    for name, stage in stages_of(FULL, PAGE).items():
        assert name == "decode" or of[name] == bound(stage.cost, H200, "bfloat16")
    assert of["vision"].ms == pytest.approx(sum(of[name].ms for name in VISION if name in of))
    assert of["first_token"].ms == pytest.approx(of["vision"].ms + of["prefill"].ms)
    steps = sum(bound(decode_step(FULL, PAGE, PAGE.prompt_tokens + k).cost, H200, "bfloat16").ms for k in range(1, 64))
    assert of["page"].ms == pytest.approx(of["first_token"].ms + steps)
    assert of["decode"].ms == pytest.approx(steps / 63), "the step in the middle is the mean"
    assert not {"tokenizer", "postprocess", "decode.early"} & {*of}
    embedded = stages_of(FULL, PAGE)["prefill"].layers["model.embed_tokens"]
    assert embedded.written_bytes == 2 * PAGE.prompt_tokens * FULL.decoder.hidden_size
    assert {name: of[name].limit for name in ("sam", "clip", "prefill", "decode")} == {
        "sam": Limit.COMPUTE,
        "clip": Limit.COMPUTE,
        "prefill": Limit.MEMORY,  # 729 tokens are too few for the weights of all experts
        "decode": Limit.MEMORY,
    }


def test_the_prefill_in_steps_and_another_dtype() -> None:
    roof = Roof.of(FULL, PAGE, H200)
    assert 4 < (roof.prefill_in_steps or 0) < 6, "it reads all 64 experts where a step reads 6"
    alone = Roof.of(FULL, replace(PAGE, generated_tokens=1), H200)
    assert alone.prefill_in_steps is None
    assert alone.bounds["page"] == alone.bounds["first_token"]
    single = Roof.of(FULL, replace(PAGE, dtype="float32"), H200)
    assert single.text == "NVIDIA H200 SXM, 67 TFLOP/s in float32, 4800 GB/s"
    assert single.bounds["decode"].ms == pytest.approx(2 * roof.bounds["decode"].ms, rel=0.01)


def test_a_device_is_found_by_its_name_in_the_driver() -> None:
    names = [gpu for device in devices().values() for gpu in device.gpus]
    assert len(names) == len({*names}) >= len(devices())
    assert device_of_gpu("NVIDIA H200") is H200
    assert device_of_gpu("NVIDIA H200 MIG 1g.18gb") is None, "part of a device has other peaks"
    baselines = [*SHIPPED.glob("*/*-gundam.json")]
    assert baselines
    assert all(device_of_gpu(read(path).identity["machine"]["gpu"]) for path in baselines)
