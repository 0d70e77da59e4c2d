"""Who answered: as JSON and back, told apart, and as the place of a recording."""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from importlib import metadata
from typing import Any

import PIL
import pytest
import torch

from pytest_dsocr.observation.provenance import (
    OF_NO_CONSEQUENCE,
    PACKAGES,
    Key,
    Provenance,
    device_class,
    slug,
    versions,
)

MADE = Provenance(
    checkpoint="synthetic:tiny@3",
    checkpoint_sha256="ab" * 32,
    vendor_sha256={"modeling_deepseekocr.py": "cd" * 32},
    device="nvidia-h200",
    dtype="bfloat16",
    attention="flash_attention_2",
    resampling="85ab7edb4ccf5db9",
    versions={"python": "3.11.9", "torch": "2.6.0"},
    overrides=("the ceiling of generate", "the image token's id"),
    date="2026-11-21",
    command="dsocr vendor record",
)
OTHER: dict[str, Any] = {
    "checkpoint": "synthetic:tiny",
    "checkpoint_sha256": "00",
    "vendor_sha256": {},
    "device": "cpu",
    "dtype": "float32",
    "attention": "eager",
    "resampling": "4e7a837ab1a41daf",
    "versions": {"python": "3.12.1", "torch": "2.6.0"},
    "overrides": (),
    "date": "2027-01-01",
    "command": "dsocr compare",
}


def test_it_comes_back_from_json() -> None:
    again = Provenance.from_json(json.loads(json.dumps(MADE.to_json())))
    assert again == MADE
    assert again.differences(MADE) == []
    assert isinstance(again.overrides, tuple)


def test_what_else_is_in_the_json_is_passed_over() -> None:
    assert Provenance.from_json({**MADE.to_json(), "machine": "h200"}) == MADE


@pytest.mark.parametrize("name", OTHER)
def test_a_lost_field_is_an_error(name: str) -> None:
    described = MADE.to_json()
    del described[name]
    with pytest.raises(KeyError, match=name):
        Provenance.from_json(described)


@pytest.mark.parametrize("name", OTHER)
def test_every_respect_of_consequence_is_a_difference(name: str) -> None:
    other = replace(MADE, **{name: OTHER[name]})
    told = f"{name}: {getattr(MADE, name)} and {OTHER[name]}"
    if name == "checkpoint_sha256":
        told = f"checkpoint_sha256: {'ab' * 8} and 00"
    if name == "vendor_sha256":
        told = f"vendor_sha256.modeling_deepseekocr.py: {'cd' * 8} and None"
    if name == "versions":
        told = "versions.python: 3.11.9 and 3.12.1"  # of what is inside, only that which differs
    assert MADE.differences(other) == ([] if name in OF_NO_CONSEQUENCE else [told])


def test_differences_are_listed_in_the_fields_order() -> None:
    lines = MADE.differences(replace(MADE, **OTHER))
    assert [line.split(":")[0].split(".")[0] for line in lines] == list(OTHER)[1:-2]


def test_the_key_is_what_decides_whether_bits_can_be_equal() -> None:
    assert MADE.key == Key("a copy", "nvidia-h200", "bfloat16", "flash_attention_2", MADE.checkpoint_sha256)
    assert str(MADE.key) == "synthetic-tiny-3/nvidia-h200-bfloat16-flash_attention_2"


@pytest.mark.parametrize(
    ("name", "slugged"),
    [
        ("synthetic:small", "synthetic-small"),
        ("deepseek-ai/DeepSeek-OCR", "deepseek-ai-DeepSeek-OCR"),
        ("/data/my model/", "data-my-model"),
        ("C:\\models\\v1.2_b", "C-models-v1.2_b"),
        ("a\n\t  b*?", "a-b"),
        ("--a--", "a"),
    ],
)
def test_names_that_any_file_system_takes(name: str, slugged: str) -> None:
    assert slug(name) == slugged


def test_versions_are_those_installed() -> None:
    found = versions()
    assert found["python"] == platform.python_version()
    assert found["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert found["pillow"] == PIL.__version__
    assert found["numpy"] == metadata.version("numpy")
    assert set(found) <= {"python", *PACKAGES}


def test_versions_leave_out_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_dsocr.observation.provenance.PACKAGES", ("no-such-package", "torch"))
    assert list(versions()) == ["python", "torch"]


@pytest.mark.parametrize("torch_device", ["cuda", "cuda:1"])
def test_a_gpu_is_known_by_its_name(torch_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"cuda": "NVIDIA H200", "cuda:1": "NVIDIA A100-SXM4-80GB"}
    monkeypatch.setattr(torch.cuda, "get_device_name", names.__getitem__)
    assert device_class(torch_device) == {"cuda": "nvidia-h200", "cuda:1": "nvidia-a100-sxm4-80gb"}[torch_device]


def test_the_processor_is_known_as_such() -> None:
    assert device_class("cpu") == "cpu"
