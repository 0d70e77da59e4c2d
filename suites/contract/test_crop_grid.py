"""Crop grids and their image tokens, compared with the vendor's for 60 page sizes.

The sizes lead to many grids, to ties between two grids, and to extreme shapes.
"""

import json
import math
from collections.abc import Mapping

import pytest

from pytest_dsocr.compare.verdict import as_expected, equal
from pytest_dsocr.contract.presets import Grid, Preset, image_token_count
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.plugin.config import own_config
from pytest_dsocr.reference.goldens import RECORDINGS, facts_of, shipped_folder

from .asked import Asked, Drawn
from .facts import Facts, compare_image_tokens
from .hints import Size, hinted, of_count, of_grid

pytestmark = pytest.mark.dsocr_level("L1")

TABLE = """
1x641 320x641 320x700 320x905 320x1000 320x1200 320x1358 320x1754 320x2480 600x641 600x1200 600x1754
640x641 640x700 640x1754 641x1 641x640 641x641 641x700 641x1754 700x600 700x700 700x1754 700x5000 905x1000
905x1810 905x2480 906x1812 960x1200 1000x1000 1000x1200 1000x1250 1000x5000 1200x320 1200x600 1200x640 1200x641
1200x960 1225x490 1240x1754 1250x1000 1300x520 1357x1357 1358x600 1358x640 1358x641 1358x700 1358x1358 1400x800
1500x1500 1540x880 1754x320 1754x905 1810x905 1812x906 1920x1080 3500x1000 5000x600 5000x700 5000x905
"""


def _size_px(name: str) -> Size:
    width_px, _, height_px = name.partition("x")
    return int(width_px), int(height_px)


SIZES = {name: _size_px(name) for name in TABLE.split()}
ASKED_PX = (*SIZES.values(), (640, 640), (32, 20))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Test :data:`SIZES`, and one size for each other grid of as many crops as the model allows."""
    if "size" in metafunc.fixturenames:
        family = family_named(own_config(metafunc.config).checkpoint)
        facts = min(facts_of(shipped_folder() / RECORDINGS, family).glob("inputs-*.json"))  # grids are of any Pillow
        rows = json.loads(facts.read_text(encoding="utf-8"))["grids"]
        known = {tuple(row[:2]): tuple(row[2:]) for row in rows}
        most = {grid: size for size, grid in known.items() if math.prod(grid) == family.tiling.most}
        for size in SIZES.values():
            most.pop(known[size], None)
        metafunc.parametrize("size", [*SIZES, *(f"{width_px}x{height_px}" for width_px, height_px in most.values())])


def _grids(asked: Asked, drawn: Drawn) -> Mapping[Size, Grid]:
    """Return the subject's grid of every size; a hint names only mistakes that lead to all of them."""
    found = {px: asked(drawn.blank(*px), pixels=False).images_spatial_crop for px in ASKED_PX}
    return {px: grid for px, [grid] in found.items()}


def _cut(asked: Asked) -> Preset:
    """Return the preset in which pages are cut."""
    return asked.family.presets[asked.family.default_preset]


def test_grid(
    size: str, facts: Facts, asked: Asked, drawn: Drawn, tokenizer: TextTokenizer, dsocr_check: Check
) -> None:
    """Compare the grid with the vendor's, and the image tokens with the number that the subject's own grid needs."""
    page = drawn.blank(*_size_px(size))
    inputs = asked(page, pixels=False)
    [actual], recorded = inputs.images_spatial_crop, facts.grid(_size_px(size))
    grid = equal("images_spatial_crop", actual, recorded, f"{math.prod(recorded)} crops, columns and rows")
    image_id, expected = tokenizer.special.image, image_token_count(facts.family.presets["gundam"], actual)
    why = f"image tokens for the whole page and its {actual[0]} x {actual[1]} crops"
    found_grid = hinted(facts.with_origin(grid), lambda: of_grid(_grids(asked, drawn), _cut(asked)))
    counts = compare_image_tokens(inputs, image_id, expected, why)
    found = inputs.prompt_ids.count(image_id)
    dsocr_check([found_grid, *(hinted(one, lambda: of_count(page, found, tokenizer, facts.family)) for one in counts)])


@pytest.mark.parametrize("page", ["tiny", "exactly_640"])
def test_a_page_within_640_px_is_not_cut(page: str, asked: Asked, drawn: Drawn, dsocr_check: Check) -> None:
    inputs = asked(drawn(page))
    crops, blank = inputs.shapes["images_crop"], "float32 [1, 3, 1024, 1024]"
    grid = as_expected("images_spatial_crop", inputs.images_spatial_crop, ((1, 1),), "as the page fits into one crop")
    found_grid = hinted(grid, lambda: of_grid(_grids(asked, drawn), _cut(asked)))
    dsocr_check([found_grid, as_expected("images_crop", crops, blank, "a float32 placeholder; real crops are bf16")])


@pytest.mark.parametrize("preset", ["tiny", "small", "base", "large"])
def test_nothing_is_cut_without_crops(preset: str, asked: Asked, drawn: Drawn, dsocr_check: Check) -> None:
    grids = asked(drawn("square"), preset).images_spatial_crop
    dsocr_check([as_expected("images_spatial_crop", grids, ((1, 1),), f"because {preset} has no crops")])
