"""The fingerprint of how Pillow resizes: what it is of, and what changes it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import PIL
import pytest
from PIL import Image

from pytest_dsocr.contract.image import SHAPES, _probe, resampling

PROBES_SHA256 = {
    (200, 90): "ef37493d6e91ea3d393d4b86f61650ab6cfea0f281d314887e6bb1f5b274be7a",
    (90, 200): "ef37493d6e91ea3d393d4b86f61650ab6cfea0f281d314887e6bb1f5b274be7a",
}


@pytest.fixture(autouse=True)
def _asked_afresh() -> Iterator[None]:
    resampling.cache_clear()
    yield
    resampling.cache_clear()


def test_the_installed_pillow_resizes_as_its_version_was_found_to() -> None:
    """Recordings are found by it, so that it must be the same on every machine with this Pillow."""
    before_13, since_13 = "4e7a837ab1a41daf", "85ab7edb4ccf5db9"
    assert resampling() == (since_13 if int(PIL.__version__.split(".")[0]) >= 13 else before_13)


@pytest.mark.parametrize(("shape", "sha256"), PROBES_SHA256.items(), ids=str)
def test_the_probes_are_the_recorded_ones(shape: tuple[int, int], sha256: str) -> None:
    probe = _probe(*shape)
    assert probe.size == shape[::-1]
    assert hashlib.sha256(probe.tobytes()).hexdigest() == sha256


def test_probes_are_of_every_level_in_every_channel() -> None:
    assert tuple(PROBES_SHA256) == SHAPES
    for channel in _probe(*SHAPES[0]).split():
        assert len(channel.getcolors() or ()) == 256


@pytest.mark.parametrize("tall", [True, False], ids=["tall", "wide"])
def test_one_level_of_either_resized_probe_changes_it(tall: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    before, resize = resampling(), Image.Image.resize

    def other(self: Image.Image, *arguments: Any) -> Image.Image:
        resized = resize(self, *arguments)
        if (self.height > self.width) is tall:
            red, green, blue = resized.getpixel((29, 19))  # type: ignore[misc]
            resized.putpixel((29, 19), (red, green, blue ^ 1))
        return resized

    monkeypatch.setattr(Image.Image, "resize", other)
    assert resampling() == before, "it is made once a process"
    resampling.cache_clear()
    assert resampling() != before
