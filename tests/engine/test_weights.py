"""Safetensors in and out of a model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.attention import eager
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.places import SYNTHETIC
from pytest_dsocr.engine.synthetic import fill
from pytest_dsocr.engine.weights import fingerprint, load_weights, read_headers, save_weights
from pytest_dsocr.foundation.errors import DsocrError

INDEX = "model.safetensors.index.json"


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
    save_file(state, folder / "model.safetensors")


def single_numbered(folder: Path, state: dict[str, Tensor]) -> None:
    save_file(state, folder / "model-00001-of-000001.safetensors")


def shards_without_index(folder: Path, state: dict[str, Tensor]) -> None:
    for number, (name, tensor) in enumerate(state.items()):
        save_file({name: tensor}, folder / f"part-{number}.safetensors")


def shards(folder: Path, state: dict[str, Tensor]) -> None:
    save_weights(state, folder, max_shard_bytes=20)


LAYOUTS = [single, single_numbered, shards_without_index, shards]
Layout = Callable[[Path, dict[str, Tensor]], None]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_loads(layout: Layout, tmp_path: Path) -> None:
    layout(tmp_path, values())
    model = Small()
    before = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    load_weights(model, tmp_path)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, values()[name])
        assert parameter.data_ptr() == before[name], "the parameter was replaced, not filled in place"
    assert torch.equal(model.get_buffer("position_ids"), torch.arange(7))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_stored_values_are_cast_to_the_parameters_dtype(dtype: torch.dtype, tmp_path: Path) -> None:
    single(tmp_path, values())
    model = Small().to(dtype)
    load_weights(model, tmp_path)
    assert torch.equal(model.first.weight, values()["first.weight"].to(dtype))


def test_index_says_which_files_belong(tmp_path: Path) -> None:
    shards(tmp_path, values())
    save_file({"adapter": torch.zeros(1)}, tmp_path / "adapter.safetensors")
    load_weights(Small(), tmp_path)


def test_buffer_that_the_vendors_class_saves_is_no_surplus(tmp_path: Path) -> None:
    single(tmp_path, {**values(), "embeddings.position_ids": torch.arange(7)})
    load_weights(Small(), tmp_path)


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    single(tmp_path, values())
    seen: list[tuple[int, int]] = []
    load_weights(Small(), tmp_path, on_progress=lambda done, total: seen.append((done, total)))
    assert sorted(seen) == seen
    assert len(seen) == 3
    assert seen[-1] == (80, 80)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"last": None}, r"fit the model, 1 missing: last;"),
        ({"extra": torch.zeros(2)}, r"fit the model, 1 surplus: extra;"),
        ({"last": torch.zeros(5, 1)}, r"fit the model, 1 misshapen: last \(F32 \[5, 1\] for \[5\]\);"),
        ({"last": torch.zeros(5, dtype=torch.int8)}, r"1 misshapen: last \(I8 \[5\] for \[5\]\);"),
        (
            {"last": None, "first.bias": torch.zeros(4), "a": torch.zeros(1)},
            r"1 missing: last; 1 surplus: a; 1 misshapen: first.bias \(F32 \[4\] for \[3\]\);",
        ),
        (
            {name: torch.zeros(1) for name in "abcde"},
            r"5 surplus: a, b, c, \.\.\.;",
        ),
    ],
)
def test_tensors_that_do_not_fit(change: dict[str, Tensor | None], complaint: str, tmp_path: Path) -> None:
    state = {name: tensor for name, tensor in (values() | change).items() if tensor is not None}
    single(tmp_path, state)
    model = Small()
    before = model.first.weight.clone()
    with pytest.raises(DsocrError, match=complaint):
        load_weights(model, tmp_path)
    assert torch.equal(model.first.weight, before), "a tensor was loaded before the names were compared"


def truncate(folder: Path) -> None:
    path = folder / "model-00002-of-000003.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def replace_by_pointer(folder: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (folder / "model-00002-of-000003.safetensors").write_text(pointer, encoding="utf-8")


def remove_shard(folder: Path) -> None:
    (folder / "model-00002-of-000003.safetensors").unlink()


def break_index(folder: Path) -> None:
    (folder / INDEX).write_text("{", encoding="utf-8")


def empty_index(folder: Path) -> None:
    (folder / INDEX).write_text("[]", encoding="utf-8")


def remove_all(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def number_index(folder: Path) -> None:
    (folder / INDEX).write_text('{"weight_map": {"a": 5}}')


def outer_index(folder: Path) -> None:
    (folder / INDEX).write_text('{"weight_map": {"a": "../other/model.safetensors"}}')


def repeat_tensor(folder: Path) -> None:
    (folder / INDEX).unlink()
    save_file({"last": torch.zeros(5)}, folder / "old.safetensors")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (truncate, r"model-00002-of-000003\.safetensors is not a whole safetensors file"),
        (replace_by_pointer, r"model-00002-of-000003\.safetensors is not a whole safetensors file"),
        (remove_shard, r"lacks model-00002-of-000003\.safetensors of the 3 files"),
        (break_index, "index.json is damaged"),
        (empty_index, "index.json .*fetch"),
        (number_index, "index.json has a wrong weight_map.*: expected str, got int"),
        (outer_index, "index.json has a wrong weight_map.*: expected str matching"),
        (remove_all, r"has no \*\.safetensors"),
        (repeat_tensor, "both hold last"),
    ],
)
def test_damaged_folders(damage: Callable[[Path], None], complaint: str, tmp_path: Path) -> None:
    shards(tmp_path, values())
    damage(tmp_path)
    with pytest.raises(DsocrError, match=complaint):
        load_weights(Small(), tmp_path)


def test_saved_files_are_named_and_indexed_as_published(tmp_path: Path) -> None:
    save_weights(values(), tmp_path / "new")
    index = json.loads((tmp_path / "new" / INDEX).read_text(encoding="utf-8"))
    file = "model-00001-of-000001.safetensors"
    assert index == {"metadata": {"total_size": 80}, "weight_map": dict.fromkeys(values(), file)}
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [file, INDEX]


def test_shards_keep_below_their_size(tmp_path: Path) -> None:
    state = {f"t{number}": torch.zeros(number) for number in (1, 2, 3, 4, 50, 1)}
    save_weights(state, tmp_path, max_shard_bytes=24)
    stored = read_headers(tmp_path)
    by_file: dict[Path, list[str]] = {}
    for name in state:
        by_file.setdefault(stored[name].path, []).append(name)
    assert list(by_file.values()) == [["t1", "t2", "t3"], ["t4"], ["t50"]]


def test_views_and_transposes_are_saved_as_what_they_show(tmp_path: Path) -> None:
    both = torch.arange(6.0)
    save_weights({"a": both[:3], "b": both[3:], "c": torch.arange(6.0).view(2, 3).T}, tmp_path)
    stored = read_headers(tmp_path)
    assert {name: (tensor.shape, tensor.n_bytes) for name, tensor in stored.items()} == {
        "a": ((3,), 12),
        "b": ((3,), 12),
        "c": ((3, 2), 24),
    }


def test_folder_with_weights_is_not_overwritten(tmp_path: Path) -> None:
    single(tmp_path, values())
    with pytest.raises(DsocrError, match="holds weights already"):
        save_weights(values(), tmp_path)


def test_failed_save_leaves_nothing(tmp_path: Path) -> None:
    broken = {"fine": torch.zeros(3), "without data": torch.zeros(3, device="meta")}
    with pytest.raises(NotImplementedError):
        save_weights(broken, tmp_path, max_shard_bytes=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fingerprint_is_of_the_content(layout: Layout, tmp_path: Path) -> None:
    layout(tmp_path, values())
    lines = [
        f"{name} F32 {list(tensor.shape)} {sha256(tensor.numpy().tobytes())}\n"
        for name, tensor in sorted(values().items())
    ]
    assert fingerprint(tmp_path) == sha256("".join(lines).encode())


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        {"last": torch.linspace(-1, 1, 5).nextafter(torch.zeros(5))},
        {"last": torch.linspace(-1, 1, 5).double()},
        {"last": torch.linspace(-1, 1, 5)[None]},
        {"last": None, "lost": torch.linspace(-1, 1, 5)},
    ],
    ids=["value", "dtype", "shape", "name"],
)
def test_fingerprint_sees_every_change(change: dict[str, Tensor | None], tmp_path: Path) -> None:
    (tmp_path / "changed").mkdir()
    single(tmp_path, values())
    single(tmp_path / "changed", {n: t for n, t in (values() | change).items() if t is not None})
    assert fingerprint(tmp_path / "changed") != fingerprint(tmp_path)


def test_model_comes_back_bit_for_bit(tmp_path: Path) -> None:
    saved, loaded = empty(SYNTHETIC["tiny"]), empty(SYNTHETIC["tiny"])
    fill(saved)
    saved.stack_experts()
    save_weights(saved.state_dict(), tmp_path, max_shard_bytes=500_000)
    loaded.stack_experts()
    load_weights(loaded, tmp_path)
    for name, tensor in saved.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    assert len(list(tmp_path.glob("*.safetensors"))) > 2


def empty(arch: Architecture) -> DeepseekOCR:
    return DeepseekOCR.empty(arch, eager, torch.device("cpu"), torch.bfloat16)
