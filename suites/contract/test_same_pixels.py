"""Files that hold the same pixels: JPEG, palette with transparency, turned by EXIF, against a plain PNG of them.

What a file's pixels are is what Pillow makes of it, upright and in RGB, as the vendor's code has it. Here one of EXIF's
orientations is asked, in ``test_file_forms.py`` each.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.compare.verdict import as_expected
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.plugin.check import Check

from .asked import Asked
from .hints import hinted

if TYPE_CHECKING:
    from PIL.Image import Image

SIZE_PX = 360, 250
MAX_NEW_TOKENS = 8
SAME = "as a plain PNG of the same pixels gives"
JPEG: Mapping[str, Any] = {"format": "JPEG", "quality": 75}
TURNED = "turned_palette_with_transparency"
BY_90 = 6
"""EXIF's orientation of a page that is upright when it is turned by 270 degrees."""
FILES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "jpeg": ("RGB", JPEG),
    "progressive_jpeg": ("RGB", {**JPEG, "progressive": True}),
    "grey_jpeg": ("L", JPEG),
    "palette_with_transparency": ("P", {"format": "PNG", "transparency": True}),
    "gif": ("P", {"format": "GIF"}),
    "turned_jpeg": ("RGB", {**JPEG, "orientation": BY_90}),
    TURNED: ("P", {"format": "PNG", "transparency": True, "orientation": BY_90}),
}
"""A page's mode in its file, and how it is saved; of a palette the darkest colour is the transparent one."""


@pytest.mark.dsocr_level("L1")
@pytest.mark.parametrize("kind", FILES)
def test_its_inputs_are_those_of_a_plain_file(kind: str, asked: Asked, tmp_path: Path, dsocr_check: Check) -> None:
    from .pages import rgb

    file, plain = _two_files(kind, rgb(*SIZE_PX), tmp_path)
    actual, expected = (asked(page, "tiny").images_ori for page in (file, plain))
    dsocr_check([hinted(as_expected("images_ori", actual, expected, SAME), lambda: iter([_told(kind)]))])


@pytest.mark.dsocr_level("L0")
def test_it_reads_as_a_plain_file(dsocr_config: Any, dsocr_subject: Any, tmp_path: Path, dsocr_check: Check) -> None:
    """The run's first page in another file: all that can be seen of a subject that shows its text alone."""
    from pytest_dsocr.contract.image import load_image
    from pytest_dsocr.pages.named import first_pages
    from pytest_dsocr.subjects.checked import CheckedSubject

    [first] = first_pages(dsocr_config.pages)
    subject = CheckedSubject(dsocr_subject)
    file, plain = (
        subject.read(make_case(page, "markdown", "tiny", MAX_NEW_TOKENS))
        for page in _two_files(TURNED, load_image(first), tmp_path)
    )
    dsocr_check([hinted(as_expected("text", file, plain, SAME), lambda: iter([_told(TURNED)]))])


def _told(kind: str) -> str:
    """Say what the file is, and what of it counts."""
    mode, how = FILES[kind]
    dropped = (
        ", whose transparency is dropped, so that the palette's colour comes back" if "transparency" in how else ""
    )
    turned = ", upright by its EXIF orientation" if "orientation" in how else ""
    return f"how the file is read, a {how['format']} in {mode}{turned}{dropped}"


def _two_files(kind: str, page: Image, folder: Path) -> tuple[Path, Path]:
    """Write a page as the kind has it, and the pixels that Pillow decodes from that file, upright, as a plain PNG."""
    from PIL import ExifTags, Image

    mode, how = FILES[kind]
    exif = Image.Exif()
    if is_turned := "orientation" in how:
        exif[ExifTags.Base.Orientation] = how["orientation"]
    file, plain = folder / f"{kind}.{how['format'].lower()}", folder / "plain.png"
    saved = page.convert(mode)
    more: dict[str, Any] = {"exif": exif} if is_turned else {}
    if "transparency" in how:
        more["transparency"] = _darkest(saved)
    saved.save(file, **{**how, **more})
    with Image.open(file) as opened:
        stored = Image.frombytes("RGB", opened.size, opened.convert("RGB").tobytes())
    upright = stored.transpose(Image.Transpose.ROTATE_270) if is_turned else stored
    upright.save(plain, compress_level=0)
    return file, plain


def _darkest(page: Image) -> int:
    """Give the index of a palette's darkest colour on the page, which its letters are of."""
    import numpy as np

    return int(np.asarray(page).flat[np.asarray(page.convert("L")).argmin()])
