"""Input tensors of the model for one prompt with its images.

A fault here raises no error in the model. With one position too few or too many, PyTorch scatters vision over the
wrong tokens, or drops the surplus.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.process import in_threads
from pytest_dsocr.contract import PIXELS, ROWS, TENSORS, StageWatch
from pytest_dsocr.contract.image import SINGLE, ImageSource, files_of, global_view, load_image
from pytest_dsocr.contract.presets import Grid, Preset, crop_count, feature_count, image_token_count
from pytest_dsocr.contract.prompt import TextTokenizer, prompt_ids, split_at_images

ImageKind = tuple[np.ndarray[Any, np.dtype[np.uint8]], int, Callable[[Image.Image], Image.Image]]
"""Levels to fill ``[N, 3, H, W]``, how many of them are side by side, and what makes all of them of a page."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """Input tensors of one prompt with its images, under the vendor's names."""

    input_ids: Tensor
    """``[1, S]`` int64."""
    images_seq_mask: Tensor
    """``[1, S]`` bool, True where an image's features go."""
    images_spatial_crop: Tensor
    """``[N, 2]`` int64, columns and rows of crops; always on the CPU."""
    images_crop: Tensor
    """``[P, 3, C, C]`` bf16, the images' crops in order. Without crops: ``[1, 3, base, base]`` of zeros in float32, or
    ``[1, 3, V, V]`` for pages at one place."""
    images_ori: Tensor
    """``[N, 3, V, V]`` bf16, the whole pages; without an image, ``[1, 3, image_size, image_size]`` of zeros in
    float32."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by its name here."""
        return {name: getattr(self, name) for name in TENSORS}

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, image tokens included."""
        return self.input_ids.shape[1]

    @cached_property
    def image_tokens(self) -> int:
        """Number of the prompt's tokens that represent images."""
        return int(self.images_seq_mask.sum())

    @cached_property
    def has_vision(self) -> bool:
        """Whether the vendor's gate passes the images in prefill.

        It does not for a prompt of one token, or if the pixels of the whole pages sum to exactly zero.
        """
        return self.prompt_tokens != 1 and bool(torch.sum(self.images_ori) != 0)

    def to(self, device: torch.device | str) -> Inputs:
        """Return the same with all but ``images_spatial_crop`` on ``device``."""
        moved = replace(self, **{name: getattr(self, name).to(device) for name in (*ROWS, *PIXELS)})
        known = {"image_tokens": self.image_tokens, "has_vision": self.has_vision}
        vars(moved).update(known)  # to ask a GPU for them again would synchronise
        return moved


def prepare_inputs(
    images: ImageSource | Sequence[ImageSource],
    prompt: str,
    preset: Preset,
    tokenizer: TextTokenizer,
    stages: StageWatch = nullcontext,  # type: ignore[assignment]
    *,
    at_one_place: bool = False,
    device: torch.device | str = "cpu",
) -> Inputs:
    """Turn one page, or several, and a prompt into the model's inputs.

    With several pages their views follow one another, as in the vendor's loop; none at all is a text-only prompt.

    Args:
        images: a page for each ``<image>`` of the prompt, in order; a folder is a list of its images.
        prompt: a text.
        preset: of the model's family.
        tokenizer: of the model that will read them.
        stages: returns a context for ``preprocess``, from the file to pixels, and one for ``tokenizer``.
        at_one_place: the images of a list, even of one, are pages at one ``<image>``; none of them is cut.
        device: where the inputs will be; the crops' pixels are moved there as levels, a byte each.

    Raises:
        DsocrError: for a page that cannot be read, a prompt that does not fit the pages, or a preset whose views yield
        another number of features than the prompt has image tokens.
    """
    images = files_of(images) if isinstance(images, SINGLE) else images
    together = at_one_place and not isinstance(images, SINGLE)
    with stages("preprocess"):
        pages = [load_image(image) for image in ([images] if isinstance(images, SINGLE) else images)]
        if together and (preset.crop or not pages):
            raise DsocrError(
                f"{len(pages)} pages in one prompt, {preset.name}; give one at least, and a preset without crops"
            )
        grids = [preset.grid(*page.size) for page in pages]
        made = [views(page, preset, grid) for page, grid in zip(pages, grids, strict=True)]
        blank_px = preset.view_size if together else preset.base_size
        images_crop = _pixels([crops for _, crops in made], blank_px, device)
        images_ori = _pixels([whole for whole, _ in made], preset.image_size, "cpu")  # where has_vision waits for none
    with stages("tokenizer"):
        pieces = split_at_images(prompt, len(pages), at_one_place=together)
        counts = [image_token_count(preset, grid) for grid in grids]
        ids, mask = prompt_ids(pieces, [sum(counts)] if together else counts, tokenizer)
        spatial_crop = torch.tensor(grids or [(0, 0)])
        inputs = Inputs(torch.tensor([ids]), torch.tensor([mask]), spatial_crop, images_crop, images_ori)
        check_inputs(inputs, preset)
        return inputs.to(device)


def views(page: Image.Image, preset: Preset, grid: Grid) -> tuple[Tensor, Tensor]:
    """Return :func:`global_view` of an RGB page, uint8 ``[1, 3, V, V]``, and its crops, with levels from 0 to 255.

    The crops are ``[P, 3, C, C]``, none for ``(1, 1)``. The page is stretched over ``grid`` and cut row by row. Pillow
    resizes each channel separately, so a channel on its own has the same bits. As many threads as torch may use work
    on all channels at the same time.
    """
    px, side = preset.tiling.crop_px, preset.view_size
    crops, whole = (np.empty((n, 3, px, px), np.uint8) for n, px in ((crop_count(grid), px), (1, side)))
    of_crops = crops, grid[0], lambda part: part.resize((grid[0] * px, grid[1] * px))
    kinds: list[ImageKind] = [*[of_crops] * bool(len(crops)), (whole, 1, lambda part: global_view(part, preset))]

    def fill(job: tuple[ImageKind, tuple[Sequence[slice], Image.Image]]) -> None:
        (out, columns, resized), (channels, part) = job
        rows, side = out.reshape(-1, columns, *out.shape[1:]), out.shape[-1]
        for channel, level in zip(channels, resized(part).split(), strict=True):
            tiles = np.asarray(level).reshape(len(rows), side, columns, side).swapaxes(1, 2)
            rows[:, :, channel] = tiles[:, :, None]

    for _ in in_threads(fill, product(kinds, _parts(page))):
        pass
    return torch.from_numpy(whole), torch.from_numpy(crops)


def _parts(page: Image.Image) -> Sequence[tuple[Sequence[slice], Image.Image]]:
    """Return what to resize for which channels: of grey its only level; by two threads all channels together."""
    red, green, blue = channels = page.split()
    if red == green == blue:
        return [([slice(3)], red)]
    places = [slice(k, k + 1) for k in range(3)]
    if torch.get_num_threads() <= 2:
        return [(places, page)]  # three channels one by one take a quarter longer
    return [([place], channel) for place, channel in zip(places, channels, strict=True)]


def normalise(levels: Tensor) -> Tensor:
    """Turn uint8 levels of 0 to 255, of any shape, into bf16 pixels in [-1, 1] on the levels' device."""
    return _pixel_of_level(levels.device).index_select(0, levels.reshape(-1).int()).view(levels.shape)


@cache
def _pixel_of_level(device: torch.device) -> Tensor:
    """Compute all by the arithmetic of torchvision's ``ToTensor`` and ``Normalize(0.5, 0.5)``: in float32, on a CPU."""
    return torch.arange(256, device="cpu").float().div_(255).sub_(0.5).div_(0.5).bfloat16().to(device)


def _pixels(of_pages: Sequence[Tensor], blank_px: int, device: torch.device | str) -> Tensor:
    """Turn levels of pages into pixels, in order; return zeros if there are none."""
    levels = [one for one in of_pages if len(one)]
    if not levels:
        return torch.zeros((1, 3, blank_px, blank_px), device=device)
    return normalise((levels[0] if len(levels) == 1 else torch.cat(levels)).to(device))


def check_inputs(inputs: Inputs, preset: Preset) -> None:
    """Raise ``DsocrError`` if vision would yield another number of features than the prompt has image tokens."""
    pages: list[Grid] = [(columns, rows) for columns, rows in inputs.images_spatial_crop.tolist() if columns]
    schedule = sum(image_token_count(preset, grid) for grid in pages)
    features = sum(feature_count(preset.view_size, preset.tiling.crop_px, grid, preset.layout) for grid in pages)
    fits = schedule <= features if preset.is_lossy else schedule == features
    if inputs.image_tokens != schedule or not fits:
        raise DsocrError(
            f"the prompt has {inputs.image_tokens} image tokens, {preset.name} asks for {schedule} and vision will "
            f"give {features} features; give a preset whose crops are {preset.tiling.crop_px} px"
        )
