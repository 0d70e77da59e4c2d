"""A case: its name, its page by content, and what is refused; provenance: as JSON and back, and as a place."""

import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case, PageFaultError, make_case, prompt_name
from pytest_dsocr.records.provenance import Provenance, RecordingKey, device_class, slug, versions
from suites.contract.pages import ORIENTATION_TAG, ROTATED_BY_90, rgb
from tests.reference.replay import MADE as CPU

FREE = DEEPSEEK_OCR.prompts["free"]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    rgb(60, 40).save(tmp_path / "invoice.png")
    return tmp_path / "invoice.png"


def sha256(page: Path) -> str:
    return Case(page, FREE, DEEPSEEK_OCR.presets["tiny"], 8192, DEEPSEEK_OCR).page_sha256


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        *((text, name) for name, text in DEEPSEEK_OCR.prompts.items()),
        (f" {FREE}\n", "free"),
        ("<image>\nWhat?", "prompt_9ed483f5"),
    ],
)
def test_prompts_by_name(prompt: str, name: str) -> None:
    assert prompt_name(prompt, DEEPSEEK_OCR) == name


def test_what_a_user_types_becomes_a_case(page: Path) -> None:
    assert make_case(str(page), "free", "base", 12, family=DEEPSEEK_OCR) == Case(
        page, FREE, DEEPSEEK_OCR.presets["base"], 12, DEEPSEEK_OCR
    )
    assert make_case(page, "<image>x", "base", family=DEEPSEEK_OCR).max_new_tokens == 8192
    assert [make_case(page, one, "tiny", family=DEEPSEEK_OCR).id for one in ("markdown", FREE)] == [
        "invoice-tiny-markdown",
        "invoice-tiny-free",
    ]


def test_a_case_as_json_tells_all_that_decides_its_output(page: Path) -> None:
    case = make_case(page, "free", "gundam", 12, family=DEEPSEEK_OCR)
    assert json.loads(json.dumps(case.to_json())) == {
        "page": "invoice.png",
        "page_sha256": sha256(page),
        "prompt": FREE,
        "preset": {"name": "gundam", "base_size": 1024, "image_size": 640, "crop": True},
        "max_new_tokens": 12,
    }


@pytest.mark.parametrize("changes", [{"preset": "huge"}, {"page": "absent.png"}, {"page": "."}, {"max_new_tokens": 0}])
def test_what_is_not_to_be_had_is_refused(changes: dict[str, str | int], page: Path) -> None:
    [value] = changes.values()
    with pytest.raises(DsocrError, match=str(value)):
        make_case(**{"page": page, "prompt": "free", "preset": "tiny", "family": DEEPSEEK_OCR, **changes})  # type: ignore[arg-type]


def test_the_hash_is_of_the_page_as_it_is_loaded(page: Path, tmp_path: Path) -> None:
    upright = rgb(60, 40)
    turned = upright.transpose(Image.Transpose.ROTATE_90)
    turned.getexif()[ORIENTATION_TAG] = ROTATED_BY_90
    turned.save(tmp_path / "turned.png", exif=turned.getexif())
    upright.convert("RGBA").save(tmp_path / "opaque.png")
    Image.frombytes("RGB", (40, 60), upright.tobytes()).save(tmp_path / "reshaped.png")
    assert sha256(page) == sha256(tmp_path / "turned.png") == sha256(tmp_path / "opaque.png")
    assert sha256(page) != sha256(tmp_path / "reshaped.png")
    (tmp_path / "page.png").write_bytes(b"no image")
    with pytest.raises(PageFaultError, match=r"page\.png"):
        sha256(tmp_path / "page.png")


MADE = replace(
    CPU, device="nvidia-h200", dtype="bfloat16", attention="flash_attention_2", resampling="85ab7edb4ccf5db9"
)
OTHER: dict[str, tuple[Any, list[str]]] = {
    "checkpoint": ("synthetic:small", []),
    "checkpoint_sha256": ("00", [f"checkpoint_sha256: {'c0' * 8} and 00"]),
    "vendor_sha256": ({"deepencoder.py": "2b" * 32}, [f"vendor_sha256.modeling_deepseekocr.py: {'1a' * 8} and None"]),
    "device": ("cpu", ["device: nvidia-h200 and cpu"]),
    "dtype": ("float32", ["dtype: bfloat16 and float32"]),
    "attention": ("eager", ["attention: flash_attention_2 and eager"]),
    "resampling": ("4e7a", ["resampling: 85ab7edb4ccf5db9 and 4e7a"]),
    "versions": ({**MADE.versions, "python": "3.11.9"}, ["versions.python: 3.12.1 and 3.11.9"]),
    "overrides": ((), [f"overrides: {MADE.overrides} and ()"]),
    "date": ("2027-01-01", []),
    "command": ("dsocr compare", []),
}
"""By field: another value, and how the two differ."""


def test_every_respect_of_consequence_is_a_difference_and_all_come_back_from_json() -> None:
    for name, (value, lines) in OTHER.items():
        other = replace(MADE, **{name: value})
        assert MADE.differences(other) == lines
        described = json.loads(json.dumps(other.to_json()))
        assert Provenance.from_json({**described, "machine": "h200"}) == other
        del described[name]
        with pytest.raises(KeyError, match=name):
            Provenance.from_json(described)


def test_the_key_is_what_decides_whether_bits_can_be_equal() -> None:
    assert MADE.key == RecordingKey("a copy", "nvidia-h200", "bfloat16", "flash_attention_2", MADE.checkpoint_sha256)
    assert str(MADE.key) == "synthetic-tiny/nvidia-h200-bfloat16-flash_attention_2"
    assert slug("C:\\models\\v1.2_b\n *?") == "C-models-v1.2_b"
    assert (slug(".a--"), len(slug("é" * 999))) == ("a", 80)


def test_versions_are_those_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_dsocr.records.provenance.PACKAGES", ("no-such-package", "torch"))
    assert versions().keys() == {"python", "torch"}
    assert versions()["python"] == platform.python_version()


def test_a_device_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", {"cuda:1": "NVIDIA A100-SXM4-80GB"}.__getitem__)
    assert [device_class(one) for one in ("cpu", "cuda:1")] == ["cpu", "nvidia-a100-sxm4-80gb"]
