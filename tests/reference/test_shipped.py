"""The shipped recordings serve whoever installs the package, whichever Pillow comes with it."""

import json
from functools import cache

import pytest

from pytest_dsocr.records.provenance import Provenance, RecordingKey
from pytest_dsocr.reference.goldens import MANIFEST
from pytest_dsocr.reference.recording import Recording
from tests.recordings import FOLDER, find_recording

MADE = [
    Provenance.from_json(json.loads(path.read_text(encoding="utf-8"))["provenance"])
    for path in sorted(FOLDER.glob(f"*/[!.]*/{MANIFEST}"))
]
KEYS = sorted({made.key for made in MADE}, key=str)
UNDER_ONE = ("unlimited_ocr-mini/nvidia-h100-80gb-hbm3-bfloat16-eager",)
"""Recorded with one Pillow only; with another, tall pages are not compared."""
ONE_WAY, OTHER_WAY = sorted({made.resampling for made in MADE})
"""Fingerprints of Pillow before and since 13.0."""


@cache
def recorded(key: RecordingKey, resampling: str) -> Recording:
    return find_recording(FOLDER, key, resampling)


@pytest.mark.parametrize("key", [key for key in KEYS if str(key) not in UNDER_ONE], ids=str)
def test_a_key_is_recorded_under_every_pillow_and_what_it_resizes_alike_is_read_alike(key: RecordingKey) -> None:
    """To the bit: two recordings of a key differ in Pillow, and in nothing else. A single page is resized alike."""
    one, other = recorded(key, ONE_WAY).cases, recorded(key, OTHER_WAY).cases
    assert list(one) == list(other) != []
    pairs = [(case.observation, other[case_id].observation) for case_id, case in one.items()]
    alike = [(actual, expected) for actual, expected in pairs if actual.inputs.has_pixels_of(expected.inputs)]
    assert 0 < len(alike) < len(pairs) or len(alike) == len(pairs) == 1
    for actual, expected in alike:
        assert actual.steps == expected.steps
        assert actual.output.text == expected.output.text
        assert {name: seam.sha256 for name, seam in actual.seams.items()} == {
            name: seam.sha256 for name, seam in expected.seams.items()
        }
