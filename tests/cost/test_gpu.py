"""At full size on a GPU: FLOPs in each attention, the kernels that torch's counter does not know, and memory."""

from typing import Any

import pytest
import torch
from PIL import Image

from pytest_dsocr.cost.cost import UNCOUNTED
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.layers.attention import attention_function
from tests.cost.full_size import counted

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

PAGE = Image.new("RGB", (1400, 1400), "white")
TOKENS = 3
NEEDS = {"flash_attention_2": "flash_attn"}


@pytest.fixture(scope="module")
def full() -> Engine[Any]:
    return Engine.from_checkpoint("synthetic:full", device="cuda", dtype="bfloat16")


@pytest.fixture(params=["eager", "sdpa", "flash_attention_2"])
def attention(request: pytest.FixtureRequest, full: Engine[Any]) -> str:
    name: str = request.param
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    for layer in model_of(full).model.decoder_layers():
        layer.self_attn.attend = attention_function(name)
    return name


def test_flops(full: Engine[Any], attention: str) -> None:
    found = counted(full, PAGE, "gundam", TOKENS, "cuda", attention=attention)
    hidden = {UNCOUNTED[attention, "cuda"]} if (attention, "cuda") in UNCOUNTED else set()
    assert {*found.operators} & {*found.uncounted} == hidden
