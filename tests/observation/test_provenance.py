"""Provenance: as JSON and back, distinguished from another, and as the place of a recording."""

import json
import platform
from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_dsocr.observation.provenance import Key, Provenance, device_class, slug, versions

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
OTHER: dict[str, tuple[Any, list[str]]] = {
    "checkpoint": ("synthetic:tiny", []),
    "checkpoint_sha256": ("00", [f"checkpoint_sha256: {'ab' * 8} and 00"]),
    "vendor_sha256": ({}, [f"vendor_sha256.modeling_deepseekocr.py: {'cd' * 8} and None"]),
    "device": ("cpu", ["device: nvidia-h200 and cpu"]),
    "dtype": ("float32", ["dtype: bfloat16 and float32"]),
    "attention": ("eager", ["attention: flash_attention_2 and eager"]),
    "resampling": ("4e7a", ["resampling: 85ab7edb4ccf5db9 and 4e7a"]),
    "versions": ({"python": "3.12.1", "torch": "2.6.0"}, ["versions.python: 3.11.9 and 3.12.1"]),
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
    assert MADE.key == Key("a copy", "nvidia-h200", "bfloat16", "flash_attention_2", MADE.checkpoint_sha256)
    assert str(MADE.key) == "synthetic-tiny-3/nvidia-h200-bfloat16-flash_attention_2"
    assert slug("C:\\models\\v1.2_b\n *?") == "C-models-v1.2_b"
    assert (slug(".a--"), len(slug("é" * 999))) == ("a", 80)


def test_versions_are_those_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_dsocr.observation.provenance.PACKAGES", ("no-such-package", "torch"))
    assert versions().keys() == {"python", "torch"}
    assert versions()["python"] == platform.python_version()


def test_a_device_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", {"cuda:1": "NVIDIA A100-SXM4-80GB"}.__getitem__)
    assert [device_class(one) for one in ("cpu", "cuda:1")] == ["cpu", "nvidia-a100-sxm4-80gb"]
