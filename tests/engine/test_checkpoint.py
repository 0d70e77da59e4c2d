"""From a user's name of a checkpoint to the checkpoint, or to a message."""

import json
import sys
from pathlib import Path

import pytest
import torch

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.engine import places
from pytest_dsocr.engine.checkpoint import Checkpoint, resolve
from pytest_dsocr.engine.places import DEFAULT_SEED, MINI_FOLDER
from pytest_dsocr.engine.weights import fingerprint, read_headers
from pytest_dsocr.layers.attention import eager
from pytest_dsocr.models.deepseek_ocr.model import DeepseekOCR
from tests.engine.written import write_synthetic
from tests.sizes import SYNTHETIC

HUB_NAME = "deepseek-ai/DeepSeek-OCR"
REVISION = "9f30c71f441d010e5429c532364a86705536c53a"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    write_synthetic("tiny", folder, torch.float32)
    return folder


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide an empty hub cache, and a network that would be noticed."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    for call in ("socket.getaddrinfo", "socket.socket.connect"):
        monkeypatch.setattr(call, lambda *_, **__: pytest.fail("the network was asked"))
    return tmp_path


def first_value(checkpoint: Checkpoint) -> float:
    """Return the first logit's first weight, of weights watched while they load."""
    model = DeepseekOCR.empty(checkpoint.architecture, eager, torch.device("cpu"), torch.float32)
    seen: list[tuple[int, int]] = []
    checkpoint.load_into(model, on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (4 * 1_000_256, 4 * 1_000_256)
    return float(model.lm_head.weight[0, 0])


@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_names(name: str) -> None:
    checkpoint = resolve(f"synthetic:{name}")
    assert (checkpoint.name, checkpoint.architecture) == (f"synthetic:{name}", SYNTHETIC[name])
    assert checkpoint.tokenizer.special.image == (500 if name in ("tiny", "published") else 128815)
    assert places.architecture_of(f"synthetic:{name}@7") == SYNTHETIC[name]


def test_a_seed_is_typed_behind_the_name() -> None:
    default = first_value(resolve("synthetic:tiny"))
    assert first_value(resolve(f"synthetic:tiny@{DEFAULT_SEED}")) == default
    assert first_value(resolve(f"synthetic:tiny@{DEFAULT_SEED + 1}")) != default
    names = ("synthetic:tiny", f"synthetic:tiny@{DEFAULT_SEED}", "synthetic:tiny@3", "synthetic:small")
    assert len({resolve(name).sha256 for name in names}) == 3, "and known by it, without being made"


@pytest.mark.parametrize("kind", [Path, str])
def test_a_folder_by_path_or_text(kind: type, written: Path) -> None:
    checkpoint, named = resolve(kind(written)), resolve("synthetic:tiny")
    assert (checkpoint.name, checkpoint.label, checkpoint.folder) == (str(written), written.name, written)
    assert checkpoint.architecture == places.architecture_of(written) == SYNTHETIC["tiny"]
    assert checkpoint.tokenizer.special == named.tokenizer.special
    assert first_value(checkpoint) == first_value(named)
    assert json.loads((written / "config.json").read_text(encoding="utf-8"))["torch_dtype"] == "float32"


@pytest.mark.parametrize(
    ("name", "model", "owner"),
    [
        ("mini", "deepseek_ocr", "deepseek_ocr"),
        ("deepseek_ocr2:mini", "deepseek_ocr2", "deepseek_ocr2"),
        ("unlimited_ocr:mini", "unlimited_ocr", "deepseek_ocr"),  # which has the same tensors, and none of its own
    ],
)
def test_an_embedded_checkpoint_is_the_models_own_if_it_has_one(name: str, model: str, owner: str) -> None:
    folder = places.folder_of(name)
    assert (folder.name, folder.parent.name) == ("mini", owner)
    assert resolve(name).architecture.family.name == model


def test_the_embedded_checkpoint_goes_before_a_folder_of_its_name(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(places.EMBEDDED, "mini", written)
    write_synthetic("tiny", tmp_path / "mini", torch.float32, seed=3)
    monkeypatch.chdir(tmp_path)
    checkpoint = resolve("mini")
    assert (checkpoint.name, checkpoint.label, checkpoint.folder) == ("mini", "mini", written)
    assert resolve("./mini").sha256 == resolve(Path("mini")).sha256 == fingerprint(tmp_path / "mini")
    monkeypatch.setitem(places.EMBEDDED, "mini", tmp_path / "absent")
    with pytest.raises(DsocrError, match="without its checkpoint 'mini'; install it again"):
        resolve("mini")


def test_a_folders_hash_is_of_its_weights_and_made_once(written: Path, tmp_path: Path) -> None:
    write_synthetic("tiny", tmp_path, torch.bfloat16)
    checkpoint, before = resolve(tmp_path), fingerprint(tmp_path)
    assert before != resolve(written).sha256 == fingerprint(written)
    assert checkpoint.sha256 == before
    for file in tmp_path.glob("*.safetensors"):
        file.unlink()
    assert checkpoint.sha256 == before


def test_a_name_in_the_hub_cache_is_found_without_the_network(hub_cache: Path) -> None:
    with pytest.raises(DsocrError, match=f"fetch it with: hf download {HUB_NAME}$"):
        resolve(HUB_NAME)
    entry = hub_cache / f"models--{HUB_NAME.replace('/', '--')}"
    write_synthetic("tiny", entry / "snapshots" / REVISION)
    (entry / "refs").mkdir()
    (entry / "refs" / "main").write_text(REVISION, encoding="utf-8")
    assert resolve(HUB_NAME).architecture == SYNTHETIC["tiny"]
    assert resolve(entry / "snapshots" / REVISION).label == HUB_NAME


def test_hub_names_without_the_hub_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DsocrError, match=r"pip install 'pytest-dsocr\[hub\]'"):
        resolve(HUB_NAME)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("synthetic:huge", "'synthetic:huge' is no checkpoint; .*synthetic:tiny, synthetic:small, synthetic:published"),
        ("synthetic:tiny@x", "no checkpoint"),
        ("", "'' is no checkpoint"),
        ("nowhere", "'nowhere' is no checkpoint; give mini, a checkpoint's folder, synthetic:"),
        ("a--b/c", "neither a folder nor in the local hub cache"),
        ("../x/y", "'../x/y' is no checkpoint"),
    ],
)
def test_other_names_are_refused(name: str, complaint: str, hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(hub_cache)
    with pytest.raises(DsocrError, match=complaint):
        resolve(name)


def test_the_embedded_checkpoint_is_small_and_in_bf16() -> None:
    assert sum(path.stat().st_size for path in MINI_FOLDER.iterdir()) <= 24 * 2**20
    assert {tensor.dtype for tensor in read_headers(MINI_FOLDER).values()} == {"BF16"}
