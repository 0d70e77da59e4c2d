"""What must hold among the tensors of :class:`~pytest_dsocr.contract.inputs.Inputs`, and what is off where it does not.

A fault here makes no noise in the model: with one position too few or too many, PyTorch scatters vision over the
wrong tokens, or drops the surplus.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pytest_dsocr.contract.grid import CANDIDATES, CROP_PX, Grid, crop_count
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.schedule import feature_count, image_token_count
from pytest_dsocr.contract.special import SpecialTokens
from pytest_dsocr.foundation.errors import DsocrError

if TYPE_CHECKING:
    from pytest_dsocr.contract.inputs import Inputs

NO_IMAGE: Grid = (0, 0)
ONE_VIEW: Grid = (1, 1)


def check_inputs(inputs: Inputs, preset: Preset, special: SpecialTokens) -> None:
    """Raise ``DsocrError`` where ``inputs`` are not what the vendor's code would make with ``preset``.

    The message names the first thing that is off, and by how much.
    """
    for problem in _problems(inputs, preset, special):
        raise DsocrError(f"these are not the vendor's inputs: {problem}; make them again with prepare_inputs")


def _problems(inputs: Inputs, preset: Preset, special: SpecialTokens) -> Iterator[str]:
    """Yield what is off; each group of rules may rely on those before it."""
    yield from _prompt_problems(inputs.input_ids, inputs.images_seq_mask, special)
    yield from _grid_problems(inputs.images_spatial_crop, preset)
    grids: list[Grid] = [(columns, rows) for columns, rows in inputs.images_spatial_crop.tolist()]
    yield from _view_problems(inputs, grids, preset)
    yield from _count_problems(inputs, grids, preset)


def _prompt_problems(ids: Tensor, mask: Tensor, special: SpecialTokens) -> Iterator[str]:
    tokens = ids.shape[-1] if ids.ndim else 0
    yield from _tensor_problems("input_ids", ids, (1, tokens), torch.int64)
    yield from _tensor_problems("images_seq_mask", mask, (1, tokens), torch.bool)
    starts = (ids[0] == special.bos).nonzero().flatten().tolist()
    if starts != [0]:
        yield f"BOS (id {special.bos}) stands at positions {starts[:3]} of input_ids where it stands once, at 0"
    differing = ((ids == special.image) != mask)[0].nonzero().flatten().tolist()
    if differing:
        yield (
            f"images_seq_mask and the <image> ids ({special.image}) of input_ids disagree at {len(differing)} "
            f"positions, the first of them {differing[0]}"
        )


def _grid_problems(spatial_crop: Tensor, preset: Preset) -> Iterator[str]:
    images = len(spatial_crop) if spatial_crop.ndim else 0
    yield from _tensor_problems("images_spatial_crop", spatial_crop, (max(images, 1), 2), torch.int64)
    if spatial_crop.device.type != "cpu":
        yield f"images_spatial_crop is on {spatial_crop.device} where it stays on the CPU"
    rows = [tuple(row) for row in spatial_crop.tolist()]
    allowed = (ONE_VIEW, *CANDIDATES) if preset.crop else (ONE_VIEW,)
    for row in rows:
        if row not in allowed and rows != [NO_IMAGE]:
            kind = "2 to 9 crops, or (1, 1)" if preset.crop else "(1, 1), as nothing is cropped"
            yield f"images_spatial_crop has {row} where {preset.name} has {kind}"


def _view_problems(inputs: Inputs, grids: list[Grid], preset: Preset) -> Iterator[str]:
    crops = sum(map(crop_count, grids))
    whole, blank_px = (len(grids), preset.view_size), preset.base_size
    if grids == [NO_IMAGE]:
        yield from _tensor_problems("images_ori", inputs.images_ori, _square(1, preset.image_size), torch.float32)
    else:
        yield from _tensor_problems("images_ori", inputs.images_ori, _square(*whole), torch.bfloat16)
    if crops:
        yield from _tensor_problems("images_crop", inputs.images_crop, _square(crops, CROP_PX), torch.bfloat16)
    else:
        yield from _tensor_problems("images_crop", inputs.images_crop, _square(1, blank_px), torch.float32)


def _count_problems(inputs: Inputs, grids: list[Grid], preset: Preset) -> Iterator[str]:
    pages = [grid for grid in grids if grid != NO_IMAGE]
    view_px, crop_px = inputs.images_ori.shape[-1], inputs.images_crop.shape[-1]
    schedule = sum(image_token_count(preset, grid) for grid in pages)
    features = sum(feature_count(view_px, crop_px, grid) for grid in pages)
    if not inputs.image_tokens == schedule == features:
        yield (
            f"the prompt has {inputs.image_tokens} image tokens, {preset.name} asks for {schedule} "
            f"and vision will give {features} features"
        )


def _tensor_problems(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[str]:
    if tensor.shape != shape or tensor.dtype != dtype:
        yield f"{name} is {list(tensor.shape)} {tensor.dtype} where it is {list(shape)} {dtype}"


def _square(views: int, side_px: int) -> tuple[int, int, int, int]:
    return views, 3, side_px, side_px
