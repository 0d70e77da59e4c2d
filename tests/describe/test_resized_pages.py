"""Descriptions of a page that was changed before its view was made, or resized in another way."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch import Tensor

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.inputs import normalise, views
from pytest_dsocr.describe.pixels import describe_pixels
from pytest_dsocr.describe.resizing import Source
from pytest_dsocr.models import MODELS
from tests.describe.changed_pixels import SIDE, of_565, pixels_of, rounded, through
from tests.describe.real import CUT, PRESET, pixels


def sheared(page: Image.Image) -> Image.Image:
    """Return a page that lies in memory in rows of whole groups of 8 bytes, and is read as if it had no gaps."""
    padded = np.pad(np.asarray(page).reshape(page.height, -1), ((0, 0), (0, -3 * page.width % 8)))
    return Image.frombytes("RGB", page.size, padded.tobytes()[: 3 * page.width * page.height])


def in_video_range(page: Image.Image) -> Image.Image:
    """Return a page with levels from 16 to 235."""
    return page.point([int(16 + one * 219 / 255 + 0.5) for one in range(256)] * 3)


def in_few_bits(page: Image.Image) -> Image.Image:
    """Return a page that was decoded to 5, 6 and 5 bits."""
    cut = of_565(torch.from_numpy(np.array(page)).permute(2, 0, 1))
    return Image.fromarray(cut.to(torch.uint8).permute(1, 2, 0).numpy())


def in_power(page: Image.Image) -> Image.Image:
    """Return the view of a page that is resized in a power of its levels."""
    size = ImageOps.contain(page, (SIDE, SIDE)).size
    lit = [Image.fromarray((np.asarray(one) / np.float32(255)) ** 2.2).resize(size) for one in page.split()]
    small = np.stack([np.asarray(one).clip(0, 1) ** (1 / 2.2) for one in lit], -1)
    view = Image.new("RGB", (SIDE, SIDE), (127, 127, 127))
    offset = round((SIDE - size[0]) * 0.5), round((SIDE - size[1]) * 0.5)
    view.paste(Image.fromarray((small * 255).round().astype(np.uint8)), offset)
    return view


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda page: _shrunk(page, 1024), "shrunk to at most 1,024 px a side, by Pillow's lanczos"),
        (lambda page: page.resize((1280, 1280)), "already stretched over its grid of crops"),
        (lambda page: page.reduce(2), "first shrunk by 2: each pixel is the mean of 2 x 2"),
        (
            sheared,
            "rows lie 3,424 bytes apart in memory and are read 3,420 apart: a row of 3,420 bytes is no multiple of 8",
        ),
        (in_video_range, "before it is resized, level 0 is 16 and level 255 is 235, on a line"),
        (in_few_bits, "before it is resized, red, green and blue have 32, 64, 32 levels: 5, 6, 5 bits"),
        (lambda page: page.point(lambda level: level // 4 * 4), "each colour has 64 levels: 6 bits, cut off"),
    ],
)
def test_a_page_that_was_resized_before_is_told_of(make: Callable[[Image.Image], Image.Image], words: str) -> None:
    page = load_image(CUT)
    found = describe_pixels(through(make(page)), pixels()[0], source=Source(page, PRESET, is_view=True))
    assert found is not None
    assert (found.kind, found.share) == ("resized", 1.0)
    assert words in found.text


def test_crops_of_another_grid_are_of_no_smaller_page() -> None:
    page = load_image(CUT)
    grid = next(one for one in PRESET.tiling.grids if one != PRESET.grid(*page.size) and math.prod(one) == 2)
    made = views(page, PRESET, grid)[1]
    found = describe_pixels(rounded(made.float()), pixels()[1], source=Source(page, PRESET, is_view=False))
    assert found is not None
    assert (found.share, found.text) == (1.0, f"the crops are those of a grid of {grid[0]} x {grid[1]}")


def test_a_page_that_is_not_cut_and_given_as_a_crop_is_of_no_smaller_page() -> None:
    page, preset = load_image(CUT).resize((532, 599)), MODELS["deepseek_ocr2"].preset("gundam")
    crop = torch.tensor(np.array(page.resize((preset.tiling.crop_px,) * 2))).permute(2, 0, 1)[None]
    none = torch.zeros(1, 3, preset.view_size, preset.view_size)
    found = describe_pixels(normalise(crop), none, source=Source(page, preset, is_view=False))
    assert found is not None
    assert (found.share, found.text) == (1.0, "a page that is not cut is one crop")


@pytest.mark.parametrize("is_view", [True, False])
def test_a_page_whose_margins_are_cut_off_is_told_of(is_view: bool) -> None:
    page = load_image(CUT)
    content = page.crop(ImageOps.invert(page.convert("L")).getbbox())
    whole = ImageOps.expand(content, (30, 50, 70, 20), "white")
    own, right = (normalise(views(one, PRESET, PRESET.grid(*one.size))[not is_view]) for one in (content, whole))
    found = describe_pixels(own, right, source=Source(whole, PRESET, is_view=is_view))
    assert found is not None
    assert found.kind == "resized"
    assert found.text.startswith("the page's margins (")
    assert found.text.endswith("are cut off: 30, 50, 70, 20 px at the left, top, right and bottom")
    assert found.share == 1.0


@pytest.mark.parametrize(("dtype", "is_view"), [(torch.bfloat16, False), (torch.float32, True)])
@pytest.mark.parametrize(
    ("finished", "words"),
    [
        (lambda x: x, "neither rounded to levels nor limited to 0 to 255"),
        (lambda x: x.clamp(0, 255), "limited to 0 to 255, and not rounded to levels"),
        (lambda x: x.clamp(0, 255).round(), "rounded once, after both passes"),
    ],
)
def test_a_page_resized_in_floats_is_told_of(
    finished: Callable[[Tensor], Tensor], words: str, dtype: torch.dtype, is_view: bool
) -> None:
    """By torch's bicubic, whose filter is Pillow's."""
    page, side = load_image(CUT), PRESET.tiling.crop_px
    columns, rows = PRESET.grid(*page.size)
    expected = pixels()[not is_view]
    levels = torch.tensor(np.array(page)).permute(2, 0, 1)[None].float()
    if is_view:
        size = [round(edge * PRESET.view_size / max(page.size)) for edge in (page.height, page.width)]
        made = torch.full((1, 3, PRESET.view_size, PRESET.view_size), 127.0)
        top, left = (round((PRESET.view_size - edge) * 0.5) for edge in size)
        made[..., top : top + size[0], left : left + size[1]] = finished(resized_in_floats(levels, size))
    else:
        stretched = finished(resized_in_floats(levels, [rows * side, columns * side]))
        made = stretched.view(3, rows, side, columns, side).permute(1, 3, 0, 2, 4).reshape(-1, 3, side, side)
    actual = ((made / 255 - 0.5) / 0.5).to(dtype)
    found = describe_pixels(actual, expected, source=Source(page, PRESET, is_view=is_view))
    assert found is not None
    assert (found.kind, words in found.text, found.share > 0.9) == ("resized", True, True), found


def resized_in_floats(levels: Tensor, size: list[int]) -> Tensor:
    return F.interpolate(levels, size=size, mode="bicubic", antialias=True, align_corners=False)


def test_a_page_resized_in_a_power_of_its_levels_is_told_of() -> None:
    actual, source = pixels_of(in_power(load_image(CUT))), Source(load_image(CUT), PRESET, is_view=True)
    found = describe_pixels(actual, pixels()[0], source=source)
    assert found is not None
    assert (found.kind, found.share, "a power of 2.2" in found.text) == ("resized", 1.0, True)
    unknown = describe_pixels(actual, pixels()[0])
    assert unknown is not None
    assert (unknown.kind, "smoother" in unknown.text, "sharper" in unknown.text) == ("anatomy", False, False)


def _shrunk(page: Image.Image, limit: int) -> Image.Image:
    shrunk = page.copy()
    shrunk.thumbnail((limit, limit), Image.Resampling.LANCZOS)
    return shrunk
