"""Safetensors in and out of a model; synthetic weights, which are the same everywhere."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import sha256
from pytest_dsocr.engine import synthetic
from pytest_dsocr.engine.places import DEFAULT_SEED
from pytest_dsocr.engine.synthetic import fill, fill_on_device, synthetic_fingerprint
from pytest_dsocr.engine.weights import INDEX, fingerprint, load_weights, read_headers, save_weights
from tests.sizes import SYNTHETIC

SECOND = "model-00002-of-000003.safetensors"
TINY_SHA256 = "123462bd469300898fdf06a3aa50331ab7947d3be0929bcff520f8bb8dfe3499"
"""The fingerprint of ``synthetic:tiny``."""


class Small(nn.Module):
    """Three parameters, and a buffer that belongs in no checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.last = nn.Parameter(torch.empty(5))
        self.register_buffer("position_ids", torch.arange(7))


def values() -> dict[str, Tensor]:
    return {
        "first.weight": torch.arange(12, dtype=torch.float32).view(3, 4) / 7,
        "first.bias": torch.tensor([0.5, -0.5, 2.0]),
        "last": torch.linspace(-1, 1, 5),
    }


def single(folder: Path, state: dict[str, Tensor]) -> None:
    """With a buffer that the vendor's class saves."""
    save_file({**state, "embeddings.position_ids": torch.arange(7)}, folder / "model.safetensors")


def shards_without_index(folder: Path, state: dict[str, Tensor]) -> None:
    for number, (name, tensor) in enumerate(state.items()):
        save_file({name: tensor}, folder / f"part-{number}.safetensors")


def shards(folder: Path, state: dict[str, Tensor]) -> None:
    """Write shards, and a file that the index does not name."""
    files = {name: f"model-{number:05d}-of-000003.safetensors" for number, name in enumerate(state, start=1)}
    for name, file in files.items():
        save_file({name: state[name]}, folder / file)
    (folder / INDEX).write_text(json.dumps({"weight_map": files}), encoding="utf-8")
    save_file({"adapter": torch.zeros(1)}, folder / "adapter.safetensors")


Layout = Callable[[Path, dict[str, Tensor]], None]


@pytest.mark.parametrize("layout", [single, shards_without_index, shards])
def test_every_layout_loads_in_place_and_has_one_fingerprint(layout: Layout, tmp_path: Path) -> None:
    layout(tmp_path, values())
    model = Small().double()
    before = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    seen: list[tuple[int, int]] = []
    load_weights(model, tmp_path, on_progress=lambda done, total: seen.append((done, total)))
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, values()[name].double())
        assert parameter.data_ptr() == before[name], "the parameter was replaced, not filled in place"
    assert torch.equal(model.get_buffer("position_ids"), torch.arange(7))
    assert (sorted(seen), len(seen), seen[-1]) == (seen, 3, (80, 80))
    lines = [f"{name} F32 {list(one.shape)} {sha256(one.numpy().tobytes())}\n" for name, one in values().items()]
    assert fingerprint(tmp_path) == sha256("".join(sorted(lines)).encode())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"last": torch.zeros(5, 1)}, r"fit the model, 1 misshapen: last \(F32 \[5, 1\] for \[5\]\);"),
        ({"last": torch.zeros(5, dtype=torch.int8)}, r"1 misshapen: last \(I8 \[5\] for \[5\]\);"),
        ({"last": None, "a": torch.zeros(1)}, r"1 missing: last; 1 surplus: a;"),
        ({name: torch.zeros(1) for name in "abcde"}, r"5 surplus: a, b, c, \.\.\.;"),
    ],
)
def test_tensors_that_do_not_fit(change: dict[str, Tensor | None], complaint: str, tmp_path: Path) -> None:
    single(tmp_path, {name: tensor for name, tensor in (values() | change).items() if tensor is not None})
    model = Small()
    before = model.first.weight.clone()
    with pytest.raises(DsocrError, match=complaint):
        load_weights(model, tmp_path)
    assert torch.equal(model.first.weight, before), "a tensor was loaded before the names were compared"


def repeat_tensor(folder: Path) -> None:
    (folder / INDEX).unlink()
    save_file({"last": torch.zeros(5)}, folder / "old.safetensors")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (
            lambda folder: os.truncate(folder / SECOND, (folder / SECOND).stat().st_size - 1),
            rf"{SECOND} is not a whole safetensors file",
        ),
        (lambda folder: (folder / SECOND).unlink(), rf"lacks {SECOND} of the 3 files"),
        (
            lambda folder: (folder / INDEX).write_text('{"weight_map": {"a": "../other/model.safetensors"}}'),
            "index.json has a wrong weight_map.*: expected str matching",
        ),
        (lambda folder: [path.unlink() for path in folder.iterdir()], r"has no \*\.safetensors"),
        (repeat_tensor, "both hold last"),
    ],
)
def test_damaged_folders(damage: Callable[[Path], object], complaint: str, tmp_path: Path) -> None:
    shards(tmp_path, values())
    damage(tmp_path)
    with pytest.raises(DsocrError, match=complaint):
        load_weights(Small(), tmp_path)


def test_saved_files_are_named_and_indexed_as_published(tmp_path: Path) -> None:
    """A transposed tensor is saved as what it shows."""
    state = {**values(), "turned": torch.arange(6.0).view(2, 3).T}
    save_weights(state, tmp_path / "new")
    file = "model-00001-of-000001.safetensors"
    assert {path.name for path in (tmp_path / "new").iterdir()} == {file, INDEX}
    index = json.loads((tmp_path / "new" / INDEX).read_text(encoding="utf-8"))
    assert index == {"metadata": {"total_size": 104}, "weight_map": dict.fromkeys(state, file)}
    assert read_headers(tmp_path / "new")["turned"].shape == (3, 2)
    with pytest.raises(DsocrError, match="holds weights already"):
        save_weights(state, tmp_path / "new")


def test_failed_save_leaves_nothing(tmp_path: Path) -> None:
    broken = {"fine": torch.zeros(3), "without data": torch.zeros(3, device="meta")}
    with pytest.raises(NotImplementedError):
        save_weights(broken, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_fingerprint_is_the_recorded_one_and_tells_seeds_sizes_and_shapes_apart() -> None:
    assert synthetic_fingerprint(SYNTHETIC["tiny"], DEFAULT_SEED) == TINY_SHA256
    tiny = SYNTHETIC["tiny"]
    architectures = [tiny, SYNTHETIC["small"], replace(tiny, decoder=replace(tiny.decoder, n_routed_experts=16))]
    prints = [synthetic_fingerprint(arch, DEFAULT_SEED) for arch in architectures]
    prints += [synthetic_fingerprint(tiny, seed) for seed in (0, 1)]
    assert len(set(prints)) == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("blocks_at_once", [1, 7, 1 << 20])
def test_a_device_makes_the_same_values(
    blocks_at_once: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors are split, or computed together; some end within a block of 16 values, or within a word of 4."""
    model = nn.ModuleDict({str(n): nn.Linear(n, 3) for n in (1, 5, 40)}).to(dtype)
    fill(model)
    made = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    monkeypatch.setattr(synthetic, "BLOCKS_AT_ONCE", blocks_at_once)
    assert sum(fill_on_device(made, DEFAULT_SEED)) == sum(one.nbytes for one in made.values())
    assert all(made[name].equal(parameter) for name, parameter in model.named_parameters())


def test_a_tensor_of_no_known_kind_is_refused() -> None:
    model = nn.Module()
    model.register_parameter("temperature", nn.Parameter(torch.zeros(1)))
    with pytest.raises(DsocrError, match="named temperature"):
        fill(model)
