"""The model's dimensions, against the vendor's published ``config.json`` and index, and its rotary frequencies."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.layers.attention import eager
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.deepseek_ocr.model import DeepseekOCR
from tests.sizes import SYNTHETIC

PUBLISHED = {
    "architectures": [DEEPSEEK_OCR.vendor.architecture],
    **json.loads(Path(__file__).with_name("published_config.json").read_text(encoding="utf-8")),
}
"""The entries of the published file that say how large the model is."""

PUBLISHED_TENSORS = 2710
PUBLISHED_BYTES = 6_672_212_480
PUBLISHED_NAMES_SHA256 = "c3bd0ecd3dacf3b8d6bc9a086ae866572e5653437df4ac7d4c4bb6da954331c9"
"""Hash of the sorted names in the published index's weight map, one on each line."""


def test_published_config_is_the_full_model() -> None:
    assert Architecture.from_config(PUBLISHED) == SYNTHETIC["full"]


def test_what_ports_have_in_their_code_is_published() -> None:
    quick, full = SYNTHETIC["published"], SYNTHETIC["full"]
    assert quick.encoder == full.encoder
    assert (quick.decoder.hidden_size, quick.decoder.head_dim) == (full.decoder.hidden_size, full.decoder.head_dim)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_round_trip_through_a_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SYNTHETIC[name].to_config()), encoding="utf-8")
    assert Architecture.from_folder(tmp_path) == SYNTHETIC[name]


def test_state_dict_is_the_published_index() -> None:
    with torch.device("meta"):
        state = DeepseekOCR(Architecture.published(DEEPSEEK_OCR)).to(torch.bfloat16).state_dict()
    assert len(state) == PUBLISHED_TENSORS
    assert sum(tensor.nbytes for tensor in state.values()) == PUBLISHED_BYTES
    assert hashlib.sha256("\n".join(sorted(state)).encode()).hexdigest() == PUBLISHED_NAMES_SHA256


@pytest.mark.parametrize(
    ("language", "complaint"),
    [
        ({"use_mla": True}, "use_mla="),
        ({"topk_method": "noaux_tc"}, "topk_method="),
        ({"scoring_func": "sigmoid"}, "scoring_func="),
        ({"rope_scaling": {"type": "yarn", "factor": 40}}, "rope_scaling="),
        ({"num_attention_heads": 11}, "the decoder's heads divide its width"),
        ({"num_key_value_heads": 3}, "multiple of its key-value heads"),
        ({"num_experts_per_tok": 65}, "no more experts than there are"),
        ({"num_hidden_layers": 128, "n_routed_experts": 512}, "all layers together have at most 8192 experts"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: expected int <= 128"),
    ],
)
def test_other_decoders_and_impossible_dimensions_are_refused(language: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DsocrError, match=complaint):
        Architecture.from_config({**PUBLISHED, "language_config": {**PUBLISHED["language_config"], **language}})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "config.json cannot be read"),
        ("[]", "expected object, got array"),
        (
            '{"model_type": "llama"}',
            r"without architectures .* \(DeepseekOCRForCausalLM, .*, DeepseekOCR2ForCausalLM\)",
        ),
        (json.dumps({"architectures": PUBLISHED["architectures"]}), "vision_config.*checkpoint's own"),
        (
            json.dumps({**PUBLISHED, "vision_config": {"width": {"sam_vit_b": {}}}}),
            "vision_config.width.*clip-l-14-224",
        ),
        (json.dumps({**PUBLISHED, "architectures": [[]]}), "architectures.*expected str, got array"),
    ],
)
def test_folder_without_a_config_of_this_model(text: str | None, complaint: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(DsocrError, match=complaint):
        Architecture.from_folder(tmp_path)


def empty(dtype: torch.dtype, *, round_rope: bool = True) -> DeepseekOCR:
    return DeepseekOCR.empty(SYNTHETIC["tiny"], eager, torch.device("cpu"), dtype, round_rope=round_rope)


def test_a_model_that_no_memory_holds_is_the_machines_fault() -> None:
    large = replace(SYNTHETIC["tiny"], decoder=replace(SYNTHETIC["tiny"].decoder, hidden_size=2**17, vocab_size=2**22))
    with pytest.raises(MachineError, match=r"cpu has no memory for weights of [\d.]+ TB"):
        DeepseekOCR.empty(large, eager, torch.device("cpu"), torch.float32)


@pytest.mark.parametrize(("round_rope", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_rotary_frequencies_are_rounded_as_the_cast_of_a_whole_model_does(round_rope: bool, dtype: torch.dtype) -> None:
    exact = empty(torch.float32).model.inv_freq
    assert torch.equal(empty(torch.bfloat16, round_rope=round_rope).model.inv_freq, exact.to(dtype))
