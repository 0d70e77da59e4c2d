"""The shipped checkpoint: small, of every kind of part, trained in each of them, and a reader of its pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ci.training.page import load_page
from ci.training.quality import Quality, measure
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI, MINI_FOLDER
from pytest_dsocr.engine.session import Session
from pytest_dsocr.engine.weights import read_headers
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.opening import Wanted
from tests.conftest import model_of
from tests.recordings import FOLDER, find_recording

MOST_BYTES = 24 * 2**20
READ = ("invoice_016", "receipt_086", "figures_201")
"""Pages of few words, in grids that it was trained on."""
SAM, CLIP, LAYER = (rf"model\.{part}" for part in ("sam_model", "vision_model", r"layers\.[1-4]"))
PARTS = {
    "SAM's patches": (rf"{SAM}\.patch_embed\.proj\.weight", 1, [128, 3, 16, 16]),
    "SAM's positions": (rf"{SAM}\.pos_embed", 1, [1, 64, 64, 128]),
    "relative positions in windows": (rf"{SAM}\.blocks\.[013]\.attn\.rel_pos_[hw]", 6, [27, 32]),
    "relative positions in the global layer": (rf"{SAM}\.blocks\.2\.attn\.rel_pos_[hw]", 2, [127, 32]),
    "SAM's neck": (rf"{SAM}\.neck\.2\.weight", 1, [128, 128, 3, 3]),
    "SAM's last convolution": (rf"{SAM}\.net_3\.weight", 1, [192, 160, 3, 3]),
    "CLIP's positions": (rf"{CLIP}\.embeddings\.position_embedding\.weight", 1, [257, 192]),
    "CLIP's layers": (rf"{CLIP}\.transformer\.layers\.\d\.self_attn\.qkv_proj\.weight", 4, [576, 192]),
    "projector": (r"model\.projector\.layers\.weight", 1, [256, 384]),
    "newline": (r"model\.image_newline", 1, [256]),
    "separator": (r"model\.view_seperator", 1, [256]),
    "dense first layer": (r"model\.layers\.0\.mlp\.down_proj\.weight", 1, [256, 768]),
    "routers": (rf"{LAYER}\.mlp\.gate\.weight", 4, [8, 256]),
    "experts": (rf"{LAYER}\.mlp\.experts\.[0-7]\.down_proj\.weight", 32, [256, 128]),
    "shared experts": (rf"{LAYER}\.mlp\.shared_experts\.down_proj\.weight", 4, [256, 256]),
    "language head": (r"lm_head\.weight", 1, [2017, 256]),
}


@pytest.fixture(scope="module")
def mini() -> Session[Any]:
    return Session.from_checkpoint(MINI)


@pytest.fixture(scope="module")
def weights(mini: Session[Any]) -> dict[str, Tensor]:
    return dict(model_of(mini).named_parameters())


def test_it_is_small_and_in_bf16() -> None:
    assert sum(path.stat().st_size for path in MINI_FOLDER.iterdir()) <= MOST_BYTES
    assert {tensor.dtype for tensor in read_headers(MINI_FOLDER).values()} == {"BF16"}


@pytest.mark.parametrize("part", PARTS)
def test_it_has_every_kind_of_part(part: str, weights: dict[str, Tensor]) -> None:
    pattern, count, shape = PARTS[part]
    found = [weight for name, weight in weights.items() if re.fullmatch(pattern, name)]
    assert len(found) == count
    assert {tuple(weight.shape) for weight in found} == {tuple(shape)}


def test_it_has_several_heads_everywhere() -> None:
    arch = resolve(MINI).architecture
    assert (arch.sam.heads, arch.clip.heads, arch.decoder.num_attention_heads) == (4, 6, 4)


def test_no_parameter_is_what_training_began_with(weights: dict[str, Tensor]) -> None:
    assert all(weight.isfinite().all() for weight in weights.values())
    still = {name for name, weight in weights.items() if torch.equal(weight, weight.flatten()[0].expand_as(weight))}
    assert not still, "biases and relative positions begin as zeros, norms as ones"


def test_every_expert_differs_from_every_other(weights: dict[str, Tensor]) -> None:
    for layer in range(1, 5):
        experts = [weights[f"model.layers.{layer}.mlp.experts.{n}.up_proj.weight"] for n in range(8)]
        assert len({tuple(weight[0].tolist()) for weight in experts}) == 8


def test_it_reads_and_stops() -> None:
    """By what the vendor's code was recorded to read with it, which is what the session reads."""
    recorded = find_recording(FOLDER, Wanted(resolve(MINI)).key, resampling()).cases
    pages = [path for path in shipped("dev-20") if path.stem in READ]
    total = Quality()
    for path in pages:
        total += _quality(path, recorded[make_case(path, "markdown", "gundam").id].observation)
    assert (total.pages, total.exact_pages, total.ended, total.true_boxes) == (3, 3, 3, 17)
    assert total.matched_boxes >= 14
    assert total.labelled_boxes >= 14
    assert total.iou_sum / total.matched_boxes > 0.9
    assert total.errors <= 0.33 * total.characters


def _quality(path: Path, seen: Observation) -> Quality:
    truth = parse(load_page(path).answer(grounded=True))
    return measure(truth, parse(seen.output.text), ended=seen.token_ids[-1] == DEFAULT.special.eos)
