"""Synthetic weights: the same everywhere, and lively enough to tell two implementations apart."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.attention import eager
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.places import DEFAULT_SEED, SYNTHETIC
from pytest_dsocr.engine.session import Session
from pytest_dsocr.engine.synthetic import fill, spread, synthetic_fingerprint
from pytest_dsocr.foundation.errors import DsocrError
from suites.contract.pages import PAGES
from tests.crops import CROPPED, CROPS
from tests.engine.written import write_synthetic

RECORDED_SHA256 = {
    "lm_head.weight": "0572168f348834f403c42e4eddd469b28491dfd714d6c98cb42fff6d2a05c08c",
    "model.norm.weight": "4d7ed794053e3a9b7dcf8c0d374c01c9e205af471e95d60fd27c09172a3a3f2f",
    "model.view_seperator": "786d8e49269e2b8eaa0d8875d684b80d4814ff50ea8f12d35b80b3de75f0f1ce",
    "model.layers.1.mlp.gate.weight": "dd52fd9b3dd2b7ddd4418011d5c0fc108207a881249711cd3f01c05c11a70b98",
    "model.layers.2.mlp.experts.7.down_proj.weight": "dc0bed5679f8b925d2e1e06e69690f8262191157a7b9f9de86ea8a45ab0e4ef2",
    "model.sam_model.blocks.1.attn.rel_pos_h": "301bb2ce875b347800ef70999c9b81e9a747c9c1ce554c772ffac3b919ec4aad",
    "model.sam_model.patch_embed.proj.bias": "5b52fdbe0248cbb55807e6fccceb72a53c35fd26dc7c4f63e15fa829004b496d",
    "model.vision_model.embeddings.class_embedding": "647593863800fd928acc7089365b133575508106ed4fb6308ae12f023bf44624",
}
"""Of the float32 bytes in ``tiny``; every recording made with synthetic weights rests on them."""

RECORDED_BF16_SHA256 = "e2e1e92d6d10875296bf1ae50a93786e15abae0ef343ce251b10c654a6f51c46"
"""Of all tensors of ``tiny`` in bf16, in the order of their names."""

TINY_SHA256 = "123462bd469300898fdf06a3aa50331ab7947d3be0929bcff520f8bb8dfe3499"
"""The fingerprint of ``synthetic:tiny``."""


def empty(arch: Architecture, dtype: torch.dtype = torch.float32) -> DeepseekOCR:
    return DeepseekOCR.empty(arch, eager, torch.device("cpu"), dtype)


def filled(dtype: torch.dtype = torch.float32, **options: Any) -> dict[str, Tensor]:
    model = empty(SYNTHETIC["tiny"], dtype)
    fill(model, **options)
    return dict(model.state_dict())


TINY = filled()


def raw(tensor: Tensor) -> bytes:
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize(("name", "sha256"), RECORDED_SHA256.items())
def test_stream_is_the_recorded_one(name: str, sha256: str) -> None:
    assert hashlib.sha256(raw(TINY[name])).hexdigest() == sha256


def test_every_tensor_in_bf16_is_the_recorded_one() -> None:
    state = filled(torch.bfloat16)
    together = b"".join(raw(state[name]) for name in sorted(state))
    assert hashlib.sha256(together).hexdigest() == RECORDED_BF16_SHA256


@pytest.mark.parametrize("columns", [64, 2**20 + 5], ids=["short", "longer than a chunk"])
def test_values_are_the_documented_function_of_seed_and_name(columns: int) -> None:
    """Written a second time, in numpy: the raw words of Philox, cut in four, centred, scaled."""
    model = nn.Module()
    model.register_parameter("weight", nn.Parameter(torch.empty(2, columns)))
    fill(model, seed=7)
    key = hashlib.sha256(b"7/weight").digest()[:16]
    words = np.random.Philox(key=int.from_bytes(key, "little")).random_raw(columns)
    integers = words.view(np.int16)[: 2 * columns].astype(np.float32)
    scale = np.float32(np.sqrt(12 / columns) / 65536)
    expected = (integers + np.float32(0.5)) * scale
    assert np.array_equal(model.get_parameter("weight").detach().numpy().reshape(-1), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_dtypes_are_the_same_values_rounded_once(dtype: torch.dtype) -> None:
    narrow = filled(dtype)
    assert all(torch.equal(narrow[name], tensor.to(dtype)) for name, tensor in TINY.items())


def test_seeds_and_names_give_other_values() -> None:
    other = filled(seed=DEFAULT_SEED + 1)
    assert all(not torch.equal(other[name], tensor) for name, tensor in TINY.items())
    first, second = (TINY[f"model.layers.{layer}.self_attn.q_proj.weight"] for layer in (0, 1))
    assert abs(float(torch.corrcoef(torch.stack([first.view(-1), second.view(-1)]))[0, 1])) < 0.05


def test_every_parameter_is_filled_with_its_own_spread() -> None:
    model = empty(SYNTHETIC["tiny"])
    for parameter in model.parameters():
        parameter.fill_(torch.nan)
    fill(model)
    for name, parameter in model.named_parameters():
        mean, std = spread(name, parameter.shape)
        noise = 6 * std / parameter.numel() ** 0.5
        assert abs(float(parameter.mean()) - mean) < noise, name
        assert abs(float(parameter.std()) - std) < noise, name
        assert float((parameter - mean).abs().max()) <= std * 3**0.5, name


def test_kinds_are_told_by_name_and_shape() -> None:
    of = {name: spread(name, tensor.shape) for name, tensor in TINY.items()}
    assert of["model.norm.weight"] == of["model.sam_model.neck.1.weight"] == (1.0, 0.1)
    assert of["model.vision_model.pre_layrnorm.bias"] == of["model.projector.layers.bias"] == (0.0, 0.1)
    assert of["lm_head.weight"] == of["model.layers.1.mlp.experts.0.gate_proj.weight"] == (0.0, 1 / 8)
    assert of["model.layers.1.mlp.gate.weight"] == of["model.layers.0.self_attn.k_proj.weight"] == (0.0, 1.5 / 8)
    assert of["model.sam_model.net_2.weight"] == (0.0, 1 / 288**0.5)
    assert of["model.sam_model.blocks.0.attn.rel_pos_w"] == (0.0, 1 / 4)
    assert of["model.image_newline"] == of["model.embed_tokens.weight"] == of["model.sam_model.pos_embed"] == (0.0, 0.5)


def test_the_fingerprint_is_of_every_tensors_name_shape_and_first_values() -> None:
    """Written a second time, from what fills a model; recordings name their weights by it."""
    digest = hashlib.sha256()
    for name, parameter in on_meta(SYNTHETIC["tiny"]).named_parameters():
        first = TINY[name].reshape(-1)[:256].contiguous()
        digest.update(f"{name} {list(parameter.shape)} ".encode() + raw(first))
    assert synthetic_fingerprint(SYNTHETIC["tiny"], DEFAULT_SEED) == digest.hexdigest() == TINY_SHA256


def test_the_fingerprint_tells_seeds_sizes_and_shapes_apart() -> None:
    tiny = SYNTHETIC["tiny"]
    architectures = [tiny, SYNTHETIC["small"], replace(tiny, decoder=replace(tiny.decoder, n_routed_experts=16))]
    prints = [synthetic_fingerprint(arch, DEFAULT_SEED) for arch in architectures]
    prints += [synthetic_fingerprint(tiny, seed) for seed in (0, 1)]
    assert len(set(prints)) == 5


def test_a_tensor_of_no_known_kind_is_refused() -> None:
    model = nn.Module()
    model.register_parameter("temperature", nn.Parameter(torch.zeros(1)))
    with pytest.raises(DsocrError, match="named temperature"):
        fill(model)


def test_progress_ends_at_the_total() -> None:
    seen: list[tuple[int, int]] = []
    filled(on_progress=lambda done, total: seen.append((done, total)))
    total_bytes = sum(tensor.nbytes for tensor in TINY.values())
    assert len(seen) == len(TINY)
    assert seen[-1] == (total_bytes, total_bytes)


def test_sizes() -> None:
    parameters = {name: sum(p.numel() for p in on_meta(arch).parameters()) for name, arch in SYNTHETIC.items()}
    assert parameters == {"tiny": 1_000_256, "small": 17_482_560, "full": 3_336_106_240}
    assert replace(SYNTHETIC["small"].decoder, vocab_size=512) == SYNTHETIC["tiny"].decoder


def on_meta(arch: Architecture) -> DeepseekOCR:
    with torch.device("meta"):
        return DeepseekOCR(arch)


def test_written_folder_is_the_same_checkpoint(tmp_path: Path) -> None:
    write_synthetic("tiny", tmp_path, torch.float32)
    named, written = resolve("synthetic:tiny"), resolve(tmp_path)
    assert written.architecture == named.architecture
    assert written.tokenizer.special == named.tokenizer.special
    loaded = empty(written.architecture)
    written.load_into(loaded)
    assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in TINY.items())
    assert json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["torch_dtype"] == "float32"


def test_written_tokenizer_is_one_that_transformers_reads(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    write_synthetic("tiny", tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "<image>\n<|grounding|>漢 x , y ."
    ids = resolve(tmp_path).tokenizer.encode(text)
    assert theirs.encode(text, add_special_tokens=False) == ids
    assert theirs.decode(ids) == text
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (0, 1, 2)


SEEN = ("portrait", "landscape", "square", "alpha")
REACHING = (
    "lm_head.weight",
    "model.embed_tokens.weight",
    "model.image_newline",
    "model.view_seperator",
    "model.layers.1.mlp.gate.weight",
    "model.layers.1.mlp.shared_experts.up_proj.weight",
    "model.layers.2.self_attn.k_proj.weight",
    "model.projector.layers.weight",
    "model.sam_model.blocks.0.attn.rel_pos_h",
    "model.sam_model.blocks.0.attn.rel_pos_w",
    "model.sam_model.blocks.1.attn.rel_pos_h",
    "model.sam_model.blocks.3.attn.qkv.weight",
    "model.sam_model.net_3.weight",
    "model.sam_model.pos_embed",
    "model.vision_model.embeddings.class_embedding",
    "model.vision_model.embeddings.position_embedding.weight",
    "model.vision_model.pre_layrnorm.bias",
)


@pytest.mark.parametrize("name", REACHING)
def test_what_a_tensor_holds_reaches_the_logits(name: str, tiny: Session[Any]) -> None:
    """Else a fault there would go unseen."""
    inputs = tiny.prepare(PAGES["portrait"](), preset="tiny")
    assert isinstance(tiny.model, DeepseekOCR)
    weights = tiny.model.state_dict()[name]
    before, saved = tiny.prefill(inputs).logits, weights.clone()
    weights.copy_(saved.flip(tuple(range(saved.dim()))))
    try:
        after = tiny.prefill(inputs).logits
    finally:
        weights.copy_(saved)
    assert float((after - before).std() / before.std()) > 0.003


@pytest.fixture(scope="module")
def outputs(tiny: Session[Any]) -> dict[str, tuple[int, ...]]:
    return {page: tiny.run(PAGES[page](), preset="tiny", max_new_tokens=48).token_ids for page in SEEN}


def test_pages_are_read_apart(outputs: dict[str, tuple[int, ...]]) -> None:
    assert len(set(outputs.values())) == len(SEEN)


@pytest.mark.parametrize("page", SEEN)
def test_greedy_output_goes_on_and_varies(page: str, outputs: dict[str, tuple[int, ...]]) -> None:
    assert len(outputs[page]) == 48
    assert len(set(outputs[page])) > 16


def test_activations_neither_die_nor_blow_up(tiny: Session[Any]) -> None:
    state = tiny.prefill(tiny.prepare(PAGES[CROPPED](), preset=CROPS))
    view = state.visions[0].page
    seams = {**view, "logits": state.logits}
    sizes = {name: float(seam.pow(2).mean().sqrt()) for name, seam in seams.items()}
    assert all(0.3 < size < 5 for size in sizes.values()), sizes


def test_best_token_leads_by_more_than_rounding(tiny: Session[Any]) -> None:
    state = tiny.prefill(tiny.prepare(PAGES["portrait"](), preset="tiny"), all_logits=True)
    assert state.all_logits is not None
    best = state.all_logits[0].topk(2).values
    lead = (best[:, 0] - best[:, 1]) / state.all_logits.std()
    assert float(lead.median()) > 0.05
    assert float((lead > 1e-4).float().mean()) > 0.98
