"""Other ways to open and to resize a page than the vendor's."""

from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps

from pytest_dsocr.contract.image import GREY, load_image
from pytest_dsocr.explain.catalogue.resampling import Kernel, cubic, resampled

Page = Image.Image
PageSize = tuple[int, int]
BarColour = tuple[int, int, int]
PageResize = Callable[[Page, PageSize], Page]
"""Resize a page to a width and a height."""


def by_pillow(image: Page, size: PageSize, method: Image.Resampling = Image.Resampling.BICUBIC, **how: Any) -> Page:
    """Resize as the vendor does, or by another of Pillow's filters."""
    return image.resize(size, method, **how).convert("RGB")


def _by_torch(image: Page, size: PageSize, dtype: torch.dtype = torch.float32, **how: Any) -> Page:
    """Resize as torch does, rounded to whole levels; on bytes by torch's integer kernel, which is torchvision's."""
    levels = torch.from_numpy(np.asarray(image.convert("RGB")).copy()).permute(2, 0, 1)[None].to(dtype)
    out = F.interpolate(levels, size=(size[1], size[0]), **how).float()
    return Image.fromarray(out[0].round().clamp(0, 255).byte().permute(1, 2, 0).numpy())


_by_bytes = partial(_by_torch, dtype=torch.uint8, antialias=True)
BICUBIC, BILINEAR = Image.Resampling.BICUBIC, Image.Resampling.BILINEAR


def _by_kernel(image: Page, size: PageSize, kernel: Kernel, **how: bool) -> Page:
    """Resize in one pass, rounded up from a half at its end alone; Pillow rounds between rows and columns as well."""
    levels = torch.from_numpy(np.asarray(image.convert("RGB")).copy()).permute(2, 0, 1)
    out = resampled(levels, (size[1], size[0]), kernel, **how)
    return Image.fromarray((out.clamp(0, 255) + 0.5).floor().byte().permute(1, 2, 0).numpy())


def _by_transform(image: Page, size: PageSize, method: Image.Resampling = BICUBIC) -> Page:
    """Resize without looking at more than a pixel's neighbours."""
    scale = (image.width / size[0], 0.0, 0.0, 0.0, image.height / size[1], 0.0)
    return image.transform(size, Image.Transform.AFFINE, scale, method)


PILLOW = partial(cubic, a=-0.5)
RESIZES: dict[str, tuple[str, PageResize]] = {
    **{
        f"pillow-{method.name.lower()}": (f"Pillow's {method.name.lower()} filter", partial(by_pillow, method=method))
        for method in Image.Resampling
        if method is not BICUBIC
    },
    "torch-bilinear-0": ("torch's bilinear", partial(_by_torch, mode="bilinear")),
    "torch-bilinear-1": ("torch's bilinear with antialias", partial(_by_torch, mode="bilinear", antialias=True)),
    "torch-bicubic-0": ("torch's bicubic", partial(_by_torch, mode="bicubic")),
    "torch-bicubic-1": ("torch's bicubic with antialias", partial(_by_torch, mode="bicubic", antialias=True)),
    "torch-bytes-bilinear": ("torchvision's bilinear on bytes, with antialias", partial(_by_bytes, mode="bilinear")),
    "torch-bytes-bicubic": ("torchvision's bicubic on bytes, with antialias", partial(_by_bytes, mode="bicubic")),
    "transform-bicubic": ("Pillow's bicubic filter without antialias", _by_transform),
    "transform-bilinear": ("Pillow's bilinear filter without antialias", partial(_by_transform, method=BILINEAR)),
    "torch-nearest": ("torch's nearest", partial(_by_torch, mode="nearest")),
    "one-pass": ("Pillow's bicubic kernel in one pass", partial(_by_kernel, kernel=PILLOW, antialias=True)),
    "no-antialias": ("Pillow's bicubic kernel without antialias", partial(_by_kernel, kernel=PILLOW)),
    "opencv-antialias": (
        "OpenCV's bicubic kernel with antialias",
        partial(_by_kernel, kernel=partial(cubic, a=-0.75), antialias=True),
    ),
    "mitchell": (
        "Mitchell's bicubic kernel with antialias, as stb does",
        partial(_by_kernel, kernel=partial(cubic, a=-1 / 3, b=1 / 3), antialias=True),
    ),
    "gap-2": ("Pillow's reducing_gap of 2", partial(by_pillow, reducing_gap=2.0)),
    "gap-3": ("Pillow's reducing_gap of 3", partial(by_pillow, reducing_gap=3.0)),
}


def opened(source: Any, change: Callable[[Page], Page]) -> Page:
    """Open a page and make it RGB in another way."""
    if isinstance(source, Page):
        return change(source)
    return change(Image.open(BytesIO(source if isinstance(source, bytes) else Path(source).read_bytes())))


def laid_over(image: Page, colour: BarColour) -> Page:
    """Blend transparent pixels onto a colour."""
    image = ImageOps.exif_transpose(image).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, (*colour, 255)), image).convert("RGB")


def _wide(image: Page) -> Page:
    """Divide 16-bit levels to 8 bits; Pillow clips them."""
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8))
    return image.convert("RGB")


def _as_stored(image: Page) -> Page:
    opened = image.convert("RGB")
    opened.info.clear()
    return opened


def _mean(image: Page) -> Page:
    grey = np.asarray(load_image(image)).mean(-1).astype(np.uint8)
    return Image.fromarray(np.repeat(grey[..., None], 3, -1))


def _jpeg(image: Page, quality: int = 75, read: Callable[[Page], Page] = load_image) -> Page:
    written = BytesIO()
    read(image).save(written, "JPEG", quality=quality)
    return Image.open(written).convert("RGB")


def _late(image: Page) -> Page:
    """Keep two levels or a palette, for which Pillow resizes to the nearest pixel."""
    return ImageOps.exif_transpose(image) if image.mode in ("1", "P") else load_image(image)


def _reduced(image: Page, least_px: int = 1024) -> Page:
    """Decode a JPEG at a half, a quarter or an eighth of its size, if both sides stay as long as a view."""
    image.draft(None, (least_px, least_px))
    return load_image(image)


def _enlarged(image: Page, below_px: int = 320) -> Page:
    """Enlarge a small page bilinearly, before it is resized rightly."""
    opened = load_image(image)
    if max(opened.size) >= below_px:
        return opened
    share = 2 * below_px / max(opened.size)
    return opened.resize((round(opened.width * share), round(opened.height * share)), BILINEAR)


STORED = "the page written as a JPEG of quality {}, its EXIF orientation left alone"
OPENINGS: dict[str, tuple[str, Callable[[Page], Page]]] = {
    "no-orientation": ("the EXIF orientation left alone", _as_stored),
    "on-white": ("transparent pixels laid on white", partial(laid_over, colour=(255, 255, 255))),
    "on-black": ("transparent pixels laid on black", partial(laid_over, colour=(0, 0, 0))),
    "on-grey": ("transparent pixels laid on grey", partial(laid_over, colour=GREY)),
    "bgr": (
        "the page's channels as blue, green, red",
        lambda image: Image.merge("RGB", load_image(image).split()[::-1]),
    ),
    "grey": ("the page made grey", lambda image: load_image(image).convert("L").convert("RGB")),
    "wide": ("16-bit levels divided by 256, not clipped", _wide),
    "grey-mean": ("the page made grey by the mean of its channels", _mean),
    "grey-late": ("the page made grey as it is stored", lambda image: image.convert("L").convert("RGB")),
    "jpeg": ("the page written as a JPEG and read again", _jpeg),
    "jpeg-95": ("the page written as a JPEG of quality 95 and read again", partial(_jpeg, quality=95)),
    "jpeg-90": ("the page written as a JPEG of quality 90 and read again", partial(_jpeg, quality=90)),
    "jpeg-75-stored": (STORED.format(75), partial(_jpeg, read=_as_stored)),
    "jpeg-95-stored": (STORED.format(95), partial(_jpeg, quality=95, read=_as_stored)),
    "late": ("a page of two levels or with a palette resized before it is made RGB", _late),
    "reduced": ("a large JPEG decoded at a part of its size", _reduced),
    "enlarged": ("a page below 320 px enlarged by a bilinear filter first", _enlarged),
    "six-bits": ("levels of 6 bits", lambda image: load_image(image).point(lambda level: level // 4 * 4)),
}
