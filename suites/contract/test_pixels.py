"""Pixels of the whole page and of its crops, compared with the vendor's."""

import pytest

from pytest_dsocr.compare.verdict import as_expected
from pytest_dsocr.contract import PIXELS
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.plugin.config import own_config

from .asked import OWN_BASE, OWN_PAGES, OWN_PRESETS, Asked, Drawn
from .facts import Facts, Pixels

pytestmark = pytest.mark.dsocr_level("L1")

CENTRE_PX = 320
GRIDS = ((3, 2), (2, 3), (3, 3), (4, 2))
"""Columns and rows of painted pages."""
FORMS = {
    "exif": "rotated by its EXIF orientation",
    "alpha": "alpha dropped, not composited, which reveals the colours below it",
    "grey_alpha": "alpha dropped",
    "palette": "colours looked up",
    "cmyk": "by Pillow's own conversion",
    "16_bit": "levels clipped at 255, not scaled",
    "grey": "the level in every channel",
    "1_bit": "black and white",
}
"""Pages in unusual modes, and how the vendor's code reads each."""


@pytest.mark.parametrize("page", FORMS)
def test_loading(page: str, pixels: Pixels, dsocr_check: Check) -> None:
    """Compare the view in Tiny and the crops in Gundam, which a subject may load in different ways."""
    seen = (("images_ori", "tiny"), ("images_crop", "gundam"))
    dsocr_check(
        pixels.compare(what, page, preset, f"that the page is read as the vendor's code reads it: {FORMS[page]}")
        for what, preset in seen
    )


# Crops: the page stretched over its grid, and cut row by row.


@pytest.mark.parametrize("page", ["portrait", "landscape", "641_high", "641_wide", "screen", "panorama"])
def test_every_bit_of_crops(page: str, pixels: Pixels, dsocr_check: Check) -> None:
    dsocr_check([pixels.compare("images_crop", page, "gundam")])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Test grids of several columns and rows, as far as the model cuts pages into as many crops."""
    if "grid" in metafunc.fixturenames:
        most = family_named(own_config(metafunc.config).checkpoint).tiling.most
        grids = [(columns, rows) for columns, rows in GRIDS if columns * rows <= most]
        metafunc.parametrize("grid", grids, ids="{0[0]}x{0[1]}".format)


def test_order(grid: tuple[int, int], asked: Asked, drawn: Drawn, dsocr_check: Check) -> None:
    """Look for tile k in crop k, on a page of tiles in different colours, painted row by row."""
    from .pages import tile_colour

    columns, rows = grid
    crops = asked.tensors(drawn.painted(columns, rows))["images_crop"]
    levels = ((crops[:, :, CENTRE_PX, CENTRE_PX].float() + 1) * 127.5).round().int()
    tiles = {tile_colour(tile): tile for tile in range(columns * rows)}
    shown = [tiles.get((red, green, blue), (red, green, blue)) for red, green, blue in levels.tolist()]
    dsocr_check([as_expected("images_crop", shown, list(range(columns * rows)), "the tile in each crop, row by row")])


def test_crops_are_zeros_where_there_are_none(asked: Asked, drawn: Drawn, dsocr_check: Check) -> None:
    """Compare with zeros: the vendor's code detects by their sum that a page has no crops."""
    largest = float(asked.tensors(drawn("tiny"))["images_crop"].abs().max())
    dsocr_check([as_expected("images_crop", largest, 0.0, "the largest value if a page is not cut")])


# The view of the whole page: padded with grey, or squashed without crops into a small view.


@pytest.mark.parametrize("preset", DEEPSEEK_OCR.presets)
@pytest.mark.parametrize("page", ["portrait", "landscape", "exactly_640", "tiny", "panorama"])
def test_every_bit_of_the_view(page: str, preset: str, pixels: Pixels, dsocr_check: Check) -> None:
    dsocr_check([pixels.compare("images_ori", page, preset)])


# Presets of a user: the vendor's ``infer`` accepts any sizes.


@pytest.mark.parametrize("preset", [*OWN_PRESETS, OWN_BASE], ids=lambda preset: preset.name)
@pytest.mark.parametrize("page", OWN_PAGES)
def test_own_presets(
    page: str,
    preset: Preset,
    pixels: Pixels,
    facts: Facts,
    asked: Asked,
    drawn: Drawn,
    tokenizer: TextTokenizer,
    dsocr_check: Check,
) -> None:
    actual, recorded = asked(drawn(page), preset), facts.prepared(page, preset)
    sizes = f"for a page's view of {preset.view_size} px"
    found = [
        *(pixels.compare(what, page, preset) for what in reversed(PIXELS) if what != "images_crop" or preset.crop),
        as_expected("images_spatial_crop", actual.images_spatial_crop, recorded.images_spatial_crop, sizes),
        as_expected("input_ids/image", actual.prompt_ids.count(tokenizer.special.image), recorded.image_tokens, sizes),
    ]
    dsocr_check(found)
