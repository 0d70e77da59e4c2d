"""How a page was opened, where its pixels are not the vendor's: each known other way is tried and held against them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageOps
from torch import Tensor

from pytest_dsocr.contract.inputs import prepare_inputs
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import TextTokenizer

SAME_LEVEL = 2.0**-8
"""Pixels from -1 to 1 that differ by less come of the same of 255 levels."""
NEARER = 0.5
"""A way of opening explains pixels that are nearer to its own than to the vendor's by this factor."""
JPEG_QUALITIES = (75, 95)

Opening = Callable[[Image.Image], Image.Image]


def of_pixels(
    what: str, mine: Tensor, vendors: Tensor, page: Path, preset: str | Preset, tokenizer: TextTokenizer
) -> Iterator[str]:
    """Yield what makes a view ``[N, 3, V, V]`` differ from the vendor's of the same shape, the likeliest first."""
    if mine.shape != vendors.shape:
        return
    found, right = mine.float().cpu(), vendors.float()
    if (found - right).abs().max() < SAME_LEVEL:
        name = str(mine.dtype).removeprefix("torch.")
        yield f"the rounding: they are the vendor's levels in {name}; infer rounds pixels to bf16"
        return
    limit, told = float((found - right).abs().mean()) * NEARER, ""
    for hint, opening in OPENINGS.items():
        with Image.open(page) as image:
            opened = opening(image)
        view = getattr(prepare_inputs([opened], "markdown", preset, tokenizer), what)
        if view.shape == found.shape and (off := float((view.float() - found).abs().mean())) < limit:
            limit, told = off, hint
    if told:
        yield f"how the page is opened: {told}"


def _upright(image: Image.Image) -> Image.Image:
    return ImageOps.exif_transpose(image).convert("RGB")


def _as_stored(image: Image.Image) -> Image.Image:
    opened = image.convert("RGB")
    opened.info.clear()
    return opened


def _on_white(image: Image.Image) -> Image.Image:
    layer = ImageOps.exif_transpose(image).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")


def _scaled(image: Image.Image) -> Image.Image:
    return image.point(lambda level: level / 256).convert("L").convert("RGB") if "I" in image.mode else _upright(image)


def _jpeg(quality: int, then: Opening) -> Opening:
    def opening(image: Image.Image) -> Image.Image:
        written = BytesIO()
        then(image).save(written, "JPEG", quality=quality)
        return Image.open(written)

    return opening


_LOSSY = "as JPEG on its way, which changes pixels"
_LAID = "without its EXIF orientation"
OPENINGS: Mapping[str, Opening] = {
    _LAID: _as_stored,
    "with what is transparent on white; infer drops the transparency": _on_white,
    "with 16-bit levels scaled; infer clips them at 255": _scaled,
    **{f"{_LOSSY} (quality {quality})": _jpeg(quality, _upright) for quality in JPEG_QUALITIES},
    **{f"{_LOSSY} (quality {quality}), {_LAID}": _jpeg(quality, _as_stored) for quality in JPEG_QUALITIES},
}
"""Ways in which ports open pages, by what is said of them."""
