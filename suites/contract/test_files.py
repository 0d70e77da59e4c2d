"""Pages in many file formats, each compared with a plain PNG of the same pixels.

The PNG has the pixels that Pillow decodes, upright and in RGB, as the vendor's code reads them. The subject is compared
with itself. The formats include JPEG, GIF, transparency, EXIF orientations and several frames.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import ExifTags, Image, ImageOps

from pytest_dsocr.compare.verdict import as_expected
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.records.case import make_case

from ..cache.ways import TextWays
from .asked import Asked

SIZE_PX = 360, 250
LARGER = 2 * max(preset.view_size for preset in DEEPSEEK_OCR.presets.values()) // min(SIZE_PX) + 1
"""Factor that makes each side more than twice that of every view: a JPEG decoder that can scale does so then."""
MAX_NEW_TOKENS = 8
SAME = "from a plain PNG of the same pixels"
TURNED = "turned_palette_with_transparency"
BY_90 = 6
"""EXIF orientation of a page that must be rotated by 270 degrees to be upright."""


def saved(
    page: Image.Image,
    path: Path,
    kind: str,
    mode: str = "RGB",
    orientation: int = 1,
    *,
    transparent: bool = False,
    **how: Any,
) -> Path:
    """Write a page in a mode and format; ``transparent`` makes the darkest colour of its palette transparent."""
    stored, exif = page.convert(mode), Image.Exif()
    if orientation != 1:
        exif[ExifTags.Base.Orientation] = orientation
        how["exif"] = exif
    if transparent:
        how["transparency"] = _darkest(stored)
    file = path.with_suffix(f".{kind.lower()}")
    stored.save(file, kind, **how)
    return file


def large_jpeg(page: Image.Image, path: Path) -> Path:
    """Write a large JPEG."""
    return saved(page.resize((LARGER * page.width, LARGER * page.height), 0), path, "JPEG", quality=85)


def frames(page: Image.Image, path: Path) -> Path:
    """Write a file of two pages."""
    return saved(page, path, "TIFF", save_all=True, append_images=[page.rotate(180)])


DROPPED = "that a palette's transparency is dropped and its colour is kept"
FORMS: Mapping[str, tuple[Callable[[Image.Image, Path], Path], str]] = {
    "jpeg": (large_jpeg, "that a JPEG is decoded at its own size, not at a reduced scale"),
    "small_jpeg": (partial(saved, kind="JPEG", quality=75), "how a JPEG is read"),
    "progressive_jpeg": (partial(saved, kind="JPEG", quality=75, progressive=True), "how a JPEG is read"),
    "grey_jpeg": (partial(saved, kind="JPEG", mode="L", quality=75), "how a JPEG in one channel is read"),
    "gif": (partial(saved, kind="GIF", mode="P"), "how a palette is read"),
    "palette_with_transparency": (partial(saved, kind="PNG", mode="P", transparent=True), DROPPED),
    "turned_jpeg": (partial(saved, kind="JPEG", quality=75, orientation=BY_90), "that EXIF's orientation is followed"),
    TURNED: (
        partial(saved, kind="PNG", mode="P", transparent=True, orientation=BY_90),
        f"{DROPPED}, and that EXIF's orientation is followed",
    ),
    **{
        f"orientation_{k}": (
            partial(saved, kind="PNG", orientation=k),
            f"EXIF's orientation {k} of 8, some of which are mirrored",
        )
        for k in range(2, 9)
    },
    "frames": (frames, "that the first of several frames is read"),
}
"""Function that saves a page in each format, and the hint if the subject reads it otherwise."""


@pytest.mark.dsocr_level("L1")
@pytest.mark.parametrize("form", FORMS)
def test_its_inputs_are_those_of_a_plain_file(form: str, asked: Asked, tmp_path: Path, dsocr_check: Check) -> None:
    from .pages import rgb

    file, plain = (asked(page, "tiny").images_ori for page in _two_files(form, rgb(*SIZE_PX), tmp_path))
    dsocr_check([as_expected("images_ori", file, plain, f"{SAME}; check {FORMS[form][1]}")])


@pytest.mark.dsocr_level("L0")
def test_it_reads_as_a_plain_file(
    family: ModelSpec, first_page: Path, text_ways: TextWays, tmp_path: Path, dsocr_check: Check
) -> None:
    """Read the run's first page from an unusual file, the only such check of a subject that offers just text."""
    cases = [
        make_case(page, "markdown", family.quickest, MAX_NEW_TOKENS, family=family)
        for page in _two_files(TURNED, load_image(first_page), tmp_path)
    ]
    file, plain = map(text_ways.asked.read, cases)
    found = text_ways.compare("text", cases[1], file, plain, f"{SAME}; check {FORMS[TURNED][1]}")
    dsocr_check([text_ways.steady(found, cases[0], file)])


def _two_files(form: str, page: Image.Image, folder: Path) -> tuple[Path, Path]:
    """Write a page in a format, and a plain PNG of the upright pixels that Pillow decodes from that file."""
    file, plain = FORMS[form][0](page, folder / form), folder / "plain.png"
    with Image.open(file) as opened:
        upright = ImageOps.exif_transpose(opened).convert("RGB")
    Image.frombytes("RGB", upright.size, upright.tobytes()).save(plain, compress_level=0)
    return file, plain


def _darkest(page: Image.Image) -> int:
    """Return the palette index of the darkest colour on the page, the colour of its letters."""
    import numpy as np

    return int(np.asarray(page).flat[np.asarray(page.convert("L")).argmin()])
