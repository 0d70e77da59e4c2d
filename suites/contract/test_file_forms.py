"""A page is the same in whatever file it comes: a JPEG, turned or mirrored by its EXIF orientation, before others.

The subject is held against itself: each file against one without loss that holds what Pillow decodes of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_dsocr.compare.verdict import equal
from pytest_dsocr.plugin.check import Check

from .asked import Asked
from .hints import hinted

if TYPE_CHECKING:
    from PIL.Image import Image

pytestmark = pytest.mark.dsocr_level("L1")

SMALL_PX = (300, 420)
TIMES = 9
"""So many times as large, a page has more than twice the sides of every view, and a decoder that scales would."""
ORIENTATIONS = range(2, 9)


def jpeg(path: Path) -> Path:
    """A large page with loss."""
    from .pages import rgb

    rgb(*SMALL_PX).resize((TIMES * SMALL_PX[0], TIMES * SMALL_PX[1]), 0).save(path.with_suffix(".jpg"), quality=85)
    return path.with_suffix(".jpg")


def oriented(orientation: int) -> Callable[[Path], Path]:
    """A page that is stored otherwise than it is shown."""

    def save(path: Path) -> Path:
        from .pages import ORIENTATION_TAG, rgb

        page = rgb(*SMALL_PX)
        page.getexif()[ORIENTATION_TAG] = orientation
        page.save(path.with_suffix(".png"), exif=page.getexif())
        return path.with_suffix(".png")

    return save


def frames(path: Path) -> Path:
    """A file of two pages."""
    from .pages import rgb

    rgb(*SMALL_PX).save(path.with_suffix(".tif"), save_all=True, append_images=[rgb(*SMALL_PX, seed=2)])
    return path.with_suffix(".tif")


FORMS: Mapping[str, tuple[Callable[[Path], Path], str]] = {
    "jpeg": (jpeg, "that a JPEG is decoded at its own size, not at a reduced scale"),
    **{
        f"orientation_{k}": (oriented(k), f"EXIF's orientation {k} of 8, some of which are mirrored")
        for k in ORIENTATIONS
    },
    "frames": (frames, "that the first of several frames is read"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_file_is_read_as_its_pixels_are(form: str, tmp_path: Path, asked: Asked, dsocr_check: Check) -> None:
    save, rule = FORMS[form]
    file, plain = save(tmp_path / "page"), tmp_path / "plain.png"
    _decoded(file).save(plain, compress_level=0)
    found, expected = (asked(path, "tiny").images_ori for path in (file, plain))
    dsocr_check([hinted(equal("images_ori", found, expected, "as of its pixels without loss"), lambda: iter([rule]))])


def _decoded(file: Path) -> Image:
    from PIL import Image, ImageOps

    with Image.open(file) as opened:
        return ImageOps.exif_transpose(opened).convert("RGB")
