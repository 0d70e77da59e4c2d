"""Whatever the bytes, the loader gives an RGB page or the project's own error.

Quick by default; ``DSOCR_FUZZ_SECONDS=60`` goes on for a minute.
"""

from __future__ import annotations

import os
import time
from io import BytesIO

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.foundation.errors import DsocrError
from suites.contract.pages import ORIENTATION_TAG, ROTATED_BY_90, rgb

SECONDS = float(os.environ.get("DSOCR_FUZZ_SECONDS", "0"))
FORMS = ("PNG", "JPEG", "TIFF", "GIF", "WEBP", "BMP", "PPM", "TGA", "ICO", "PCX", "DDS", "JPEG2000")
HEADER_BYTES = 80


def seed_file(form: str) -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = ROTATED_BY_90
    buffer = BytesIO()
    rgb(37, 23).save(buffer, form, **({"exif": exif} if form in {"PNG", "JPEG", "TIFF", "WEBP"} else {}))
    return buffer.getvalue()


SEEDS = [seed_file(form) for form in FORMS]


@st.composite
def broken_files(draw: st.DrawFn) -> bytes:
    """A real file with some bytes changed, most of them in its header, perhaps cut short, perhaps with more behind."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    spots = st.integers(0, HEADER_BYTES) | st.integers(0, len(data) - 1)
    for spot, value in draw(st.lists(st.tuples(spots, st.integers(0, 255)), max_size=8)):
        data[min(spot, len(data) - 1)] = value
    end = draw(st.just(len(data)) | st.integers(0, len(data)))
    return bytes(data[:end]) + draw(st.binary(max_size=8))


@given(broken_files() | st.binary(max_size=200))
@settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def read_or_refuse(data: bytes) -> None:
    try:
        page = load_image(data)
    except DsocrError:
        return
    assert page.mode == "RGB"
    assert min(page.size) > 0


def test_the_seeds_are_read() -> None:
    assert {load_image(seed).mode for seed in SEEDS} == {"RGB"}


def test_nothing_but_the_projects_error_escapes() -> None:
    end = time.monotonic() + SECONDS
    read_or_refuse()
    while time.monotonic() < end:
        read_or_refuse()
