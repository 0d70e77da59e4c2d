"""Mistakes of preprocessing planted on a real page are described, and others are not taken for one of them."""

from collections.abc import Callable, Mapping
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.inputs import normalise, views
from pytest_dsocr.describe import colours, distinct, levels, spectrum
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.pixels import describe_pixels
from pytest_dsocr.describe.views import Views
from tests.describe.changed_pixels import SIDE, of_565, pixels_of, rounded, through
from tests.describe.real import CUT, PAGE, PRESET, crops, pixels, random

CLIP_MEAN, CLIP_STD = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))


def padded(
    color: int = 127, centring: tuple[float, float] = (0.5, 0.5), method: int = Image.Resampling.BICUBIC
) -> Tensor:
    """Return the page's view, padded in another way."""
    page = ImageOps.pad(load_image(CUT), (SIDE, SIDE), method, color=(color,) * 3, centering=centring)
    return pixels_of(page)


def bars_of_zero() -> Tensor:
    """Return the view with bars that are added after the normalisation."""
    right = pixels()[0].clone()
    right[(crops()[0] == 127).all(1, keepdim=True).expand_as(right)] = 0
    return right


def jpeg() -> Tensor:
    """Return the view of the page after it was compressed."""
    data = BytesIO()
    load_image(CUT).save(data, "JPEG", quality=90)
    return through(load_image(data.getvalue()))


def of_clip(levels: Tensor) -> Tensor:
    """Normalise by CLIP's mean and deviation."""
    mean, std = (torch.tensor(one)[:, None, None] for one in (CLIP_MEAN, CLIP_STD))
    return ((levels / 255 - mean) / std).bfloat16()


def cut(levels: Tensor, dropped: int) -> Tensor:
    """Return pixels without some of the lowest bits of float32."""
    return (normalise_exactly(levels).view(torch.int32) >> dropped << dropped).view(torch.float32)


def normalise_exactly(levels: Tensor) -> Tensor:
    """Normalise levels in float32."""
    return (levels / 255 - 0.5) / 0.5


def covered(levels: Tensor) -> Tensor:
    """Return levels with grey over the end of the page."""
    levels = levels.clone()
    levels[..., 300:, :] = 127
    return rounded(levels)


def in_grey(levels: Tensor) -> Tensor:
    """Return levels of luma."""
    luma = (levels * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(-3, keepdim=True)
    return rounded(luma.expand_as(levels))


PLANTED: Mapping[str, tuple[Callable[[Tensor], Tensor], str, str]] = {
    "float32": (lambda x: (x / 255 - 0.5) / 0.5, "unrounded", "not rounded to bfloat16"),
    "from 0 to 1": (lambda x: (x / 255).bfloat16(), "levels", "from 0 to 1 instead"),
    "levels": (lambda x: x.bfloat16(), "levels", "from 0 to 255 instead"),
    "twice": (lambda x: ((x / 255 - 0.5) / 0.5 * 2 - 1).bfloat16(), "levels", "mean 0.750 and std 0.250"),
    "CLIP's": (of_clip, "levels", "red: normalised with mean 0.481 and std 0.269"),
    "gamma": (lambda x: rounded(255 * (x / 255) ** (1 / 2.2)), "levels", "gamma of 0.45"),
    "inverted": (lambda x: rounded(255 - x), "levels", "inverted"),
    "video": (lambda x: rounded(x.clamp(16, 235)), "levels", "not below 16 and not above 235"),
    "narrow": (lambda x: rounded(16 + x * 219 / 255), "levels", "level 0 is 16 and level 255 is 235, on a line"),
    "by 128": (lambda x: ((x - 127) / 128).bfloat16(), "levels", "pixels are (level - 127) / 128 instead of"),
    "covered": (covered, "covered", "lines are level 127 (the grey of bars)"),
    "grey": (in_grey, "grey", "the page is grey: its colours are equal"),
    "lower": (lambda x: rounded(x - 1), "levels", "every level is 1 lower"),
    "by 256": (lambda x: ((x / 256 - 0.5) / 0.5).bfloat16(), "levels", "every level is multiplied by 0.996"),
    "BGR": (lambda x: rounded(x.flip(1)), "colours", "red and blue are exchanged"),
    "mirrored": (lambda x: rounded(x.flip(-1)), "turned", "flipped left to right"),
    "transposed": (lambda x: rounded(x.mT), "turned", "x and y exchanged"),
    "moved": (lambda x: rounded(x.roll((3, -2), (-2, -1))), "shifted", "2 px to the left and 3 px down"),
    "bars of zero": (lambda x: bars_of_zero(), "levels", "level 127.5 (a value of 0) instead of 127"),
    "bars": (lambda _: padded(128), "bars", "level 128 instead of 127"),
    "squashed": (lambda _: pixels_of(load_image(CUT).resize((SIDE, SIDE))), "bars", "fills the view, without bars"),
    "smoothed": (lambda x: rounded((x + x.roll(1, -1) + x.roll(-1, -1)) / 3), "filtered", "smoother"),
    "int8": (lambda x: (((x / 255 - 0.5) / 0.5) * 127).round().div(127).bfloat16(), "step", "multiples of 1/127: held"),
    "few bits": (lambda x: rounded((x / 8).floor() * 8), "bits", "each colour has 32 levels: 5 bits, cut off"),
    "565": (lambda x: rounded(of_565(x)), "bits", "red, green and blue have 32, 64, 32 levels: 5, 6, 5 bits"),
    "truncated": (lambda x: cut(x, 16), "truncated", "bfloat16 by truncation, not rounding: each value that differs"),
    "float16": (lambda x: cut(x, 13), "truncated", "float16 by truncation"),
    "last axis": (lambda x: rounded(x).permute(0, 2, 3, 1), "transposed", "axes are in another order"),
}


def described(levels_changed: Callable[[Tensor], Tensor]) -> Description:
    """Describe the changed view of the page."""
    found = describe_pixels(levels_changed(crops()[0].float()), pixels()[0])
    assert found is not None
    return found


@pytest.mark.parametrize("name", PLANTED)
def test_a_mistake_of_preprocessing_is_described(name: str) -> None:
    plant, kind, words = PLANTED[name]
    found = described(plant)
    assert (found.kind, found.explains) == (kind, True), found.text
    assert words in found.text


def test_no_property_is_named_that_the_right_pixels_have() -> None:
    found = described(lambda x: normalise_exactly(x) + 2e-3)
    assert found.kind not in {"bits", "step", "truncated"}, found.text


def test_no_step_is_named_that_the_right_pixels_have() -> None:
    few = (crops()[0] // 17 * 17).float()
    right = normalise(few.to(torch.uint8))
    own = (few * 2 / 17 - 15).round() / 15
    assert not [*distinct.relations(own, right.float())]
    assert [*distinct.relations(own, pixels()[0].float())] == []


def test_colours_are_mixed_only_if_no_line_of_each_colour_does_it() -> None:
    right = views(load_image(PAGE), PRESET, (1, 1))[0].float()
    sepia = torch.tensor([[0.40, 0.77, 0.19], [0.35, 0.69, 0.17], [0.27, 0.53, 0.13]])
    found = describe_pixels(rounded(torch.einsum("nchw,dc->ndhw", right, sepia)), rounded(right))
    assert found is not None
    assert (found.kind, found.explains, "red is 0.4" in found.text) == ("colours", True, True), found.text
    lines = (right * torch.tensor([0.8, 0.9, 0.7])[:, None, None] + random(*right.shape) * 2).round()
    assert colours.mixed(Views(lines, right)) is None


def test_no_shift_is_named_that_rounds_to_nothing() -> None:
    right = torch.arange(255).float().repeat(3, 17, 1)[None]
    for apart in (0.01, -0.04):
        found = [one for one in levels.relations(right + apart, right) if one]
        assert not any("every level is" in one.text for one in found)
    assert any("every level is 1 higher" in one.text for one in levels.relations(right + 1, right) if one)


OTHER: Mapping[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "bilinear": (lambda _: padded(method=Image.Resampling.BILINEAR), "smoother"),
    "nearest": (lambda _: padded(method=Image.Resampling.NEAREST), "sharper, or aliased"),
    "noise": (lambda x: rounded(x + 3 * random(*x.shape)), "4"),
    "JPEG": (lambda _: jpeg(), "% of the values differ"),
    "wider": (lambda _: through(load_image(CUT).resize((1141, 1101))), "inside of lines"),
}


def test_a_picture_is_smoother_only_if_its_details_are_weaker_everywhere_and_nothing_else_is() -> None:
    right = crops()[0].float()
    smooth = torch.stack([right.roll((y, x), (-2, -1)) for y in (-1, 0, 1) for x in (-1, 0, 1)]).mean(0)
    in_part = right.clone()
    in_part[..., 60:200, :] = smooth[..., 60:200, :]
    for actual, is_smoother in (
        (smooth, True),
        (right.roll((1, 1), (-2, -1)), False),
        (16 + smooth * 219 / 255, False),
        (in_part, False),
    ):
        assert ("smoother" in spectrum.compared(actual, right)) is is_smoother


@pytest.mark.parametrize("name", OTHER)
def test_the_size_and_the_place_of_any_other_difference_are_measured(name: str) -> None:
    plant, words = OTHER[name]
    found = described(plant)
    assert (found.kind, found.explains) == ("anatomy", False), found.text
    assert words in found.text


def test_crops_that_begin_a_pixel_early_are_shifted_by_their_places_and_not_smoother() -> None:
    page, (columns, rows) = load_image(CUT).resize((640, 640)), (2, 2)
    early, right = (
        torch.stack(
            [
                torch.from_numpy(np.array(page.crop((c * stride, r * stride, c * stride + 320, r * stride + 320))))
                for r in range(rows)
                for c in range(columns)
            ]
        ).permute(0, 3, 1, 2)
        for stride in (319, 320)
    )
    found = describe_pixels(rounded(early.float()), rounded(right.float()), (columns, rows))
    assert found is not None
    assert (found.kind, found.share) == ("shifted", 1.0), found.text
    assert "1 px to the right for each column before it and 1 px down for each row before it" in found.text
    assert "319 px apart along a row instead of 320" in found.text
    only = spectrum.filtered(early[1:2].float(), right[1:2].float())
    assert only is None


def test_crops_in_another_order_and_single_ones_are_named() -> None:
    right = pixels()[1][..., ::2, ::2]
    for actual, kind, words in (
        (right[[0, 2, 1, 3]], "reordered", "column by column instead of row by row"),
        (right[[1, 0, 2, 3]], "reordered", "the expected views 2, 1, 3, 4"),
        (right[1:], "left-out", "they are the expected views 2 to 4"),
        (torch.cat([right[:1].flip(-1), right[1:]]), "turned", "only view 1 of 4 differs: the view is flipped"),
    ):
        found = describe_pixels(actual, right, (2, 2))
        assert found is not None
        assert (found.kind, found.explains) == (kind, True), found.text
        assert words in found.text
    assert describe_pixels(right, right) is None
    assert not getattr(describe_pixels(right[..., :160], right), "explains", True)
