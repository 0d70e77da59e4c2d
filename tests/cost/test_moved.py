"""Bytes are what modules are given and give, their weights and the cache; other operations are what torch runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from PIL import Image
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_dsocr.cost.cost import Cost, by_module
from pytest_dsocr.cost.encoders import UNUSED
from pytest_dsocr.cost.model import OWN, parameters, stages_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.engine import Engine
from tests.conftest import model_of
from tests.cost.full_size import shown
from tests.crops import CROPS

PAGE_PX = (1280, 640)
ROWS, TOKENS, TOKEN = 2, 4, 5
SIZE = 4
THROUGH = ("proj", "mlp", "neck.0", "neck.2", "net_2", "net_3", "self_attn", "projector", "lm_head")
"""Modules that multiply, by the end of their names, whose input and output are moved; SAM's windows are cut inside."""
NOT_ALL_READ = ("experts", "embed_tokens", UNUSED)
OPERATIONS = {
    **dict.fromkeys(("add", "mul", "sub", "div", "pow", "mean", "sum", "sigmoid", "masked_fill"), 1),
    "silu": 2,
    "gelu": 5,
    "_softmax": 5,
    "native_layer_norm": 7,
}
"""On each number of the operator's largest tensor."""
SMALL = 0.001
"""Of the operations: what is done once a row or once a view, and a sign that the rotation turns."""


Passed = tuple[Counter[str], Counter[str], Counter[str]]


def work_of(session: Engine[Any], rows: int = 1) -> Workload:
    return Workload.of_prompt(
        PAGE_PX, "free", CROPS, session.tokenizer, generated_tokens=TOKENS, dtype="float32", batch=rows
    )


def run(session: Engine[Any], rows: int) -> None:
    page = Image.new("RGB", PAGE_PX, "white")
    states = [session.prefill(session.prepare(page, prompt="free", preset=CROPS)) for _ in range(rows)]
    state = session.pipeline.join(states) if rows > 1 else states[0]
    for _ in range(TOKENS - 1):
        session.decode_step(state, [TOKEN] * rows)


@pytest.fixture(scope="module")
def passed(tiny: Engine[Any]) -> Passed:
    """The bytes that each module is given and gives, and its calls, of two pages."""
    given, gave, calls = Counter[str](), Counter[str](), Counter[str]()
    handles = []
    for name, module in shown(model_of(tiny)).items():

        def note(_: nn.Module, args: tuple[Any, ...], out: Tensor, name: str = name) -> None:
            calls[name] += 1
            given[name] += args[0].nbytes
            gave[name] += out.nbytes if isinstance(out, Tensor) else 0

        handles.append(module.register_forward_hook(note))
    run(tiny, ROWS)
    for handle in handles:
        handle.remove()
    return given, gave, calls


def test_bytes_are_what_passes_through_the_modules(tiny: Engine[Any], passed: Passed) -> None:
    arch, work = model_of(tiny).arch, work_of(tiny, ROWS)
    given, gave, calls = passed
    found = by_module(stages_of(arch, work).values())
    held = ROWS * sum(range(work.prompt_tokens, work.prompt_tokens + work.decode_steps))
    new = ROWS * (work.prompt_tokens + work.decode_steps)
    a_position = 2 * arch.decoder.num_key_value_heads * arch.decoder.head_dim * SIZE
    compared = []
    for module in filter(lambda name: name.endswith(THROUGH), calls):
        cost = sum((one for name, one in found.items() if f"{name}.".startswith(f"{module}.")), Cost())
        cached = module.startswith("model.layers.") and module.endswith("self_attn")
        read, written = given[module] + held * a_position * cached, gave[module] + new * a_position * cached
        assert (cost.read_bytes, cost.written_bytes) == (read, written), module
        compared.append(module)
    assert {name.split(".")[1] for name in compared if name != "lm_head"} == {
        *("sam_model", "vision_model", "projector", "layers")
    }


def test_weights_are_read_once_a_call(tiny: Engine[Any], passed: Passed) -> None:
    arch, work = model_of(tiny).arch, work_of(tiny, ROWS)
    calls = passed[2]
    found, counts = by_module(stages_of(arch, work).values()), parameters(arch)
    for name, count in counts.items():
        if name in calls and not name.endswith(NOT_ALL_READ):
            assert found[name].weight_bytes == SIZE * count * calls[name], name
    assert all(found[name].weight_bytes == SIZE * counts[name] * ROWS for name in OWN)


class Elementwise(TorchDispatchMode):
    """Counts what is no product, by the sizes of tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops: Counter[str] = defaultdict(int)  # type: ignore[assignment]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__.removesuffix("_")  # or in place
        first = out[0] if isinstance(out, tuple) else out
        if name in OPERATIONS and first.is_floating_point():
            numbers = max(one.numel() for one in (*args[:2], first) if isinstance(one, Tensor))
            self.flops[name] += OPERATIONS[name] * numbers
        if name == "addmm":
            self.flops["bias"] += out.numel()
        if name == "convolution" and args[2] is not None:
            self.flops["bias"] += out.numel()
        if name.startswith("_scaled_dot"):
            scores = args[0].shape[:-1].numel() * args[1].shape[-2]
            has_bias = (kwargs or {}).get("attn_mask") is not None
            self.flops[name] += scores * (1 + OPERATIONS["_softmax"] + has_bias)
        return out


def test_other_operations_are_what_torch_runs(tiny: Engine[Any]) -> None:
    pipeline, stages = tiny.pipeline, stages_of(model_of(tiny).arch, work_of(tiny))
    inputs = tiny.prepare(Image.new("RGB", PAGE_PX, "white"), prompt="free", preset=CROPS)
    counted = {stage: Elementwise() for stage in ("sam", "clip", "prefill")}
    with counted["sam"]:
        features = [pipeline.encode("sam", view) for view in (inputs.images_crop, inputs.images_ori)]
    with counted["clip"]:
        [pipeline.encode("clip", feature) for feature in features]
    seen = pipeline.vision(inputs)[0].vision_fusion
    with counted["prefill"]:
        pipeline.prefill_with(inputs, seen)
    for stage, found in counted.items():
        assert sum(found.flops.values()) == pytest.approx(stages[stage].cost.other_flops, rel=SMALL), stage
