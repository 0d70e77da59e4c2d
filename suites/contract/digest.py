"""Inputs as a recording keeps them: small enough to read, and telling any two apart."""

from __future__ import annotations

import hashlib
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from suites.contract.pages import rgb


def digest(
    input_ids: Tensor, images_seq_mask: Tensor, images_spatial_crop: Tensor, images: list[tuple[Tensor, Tensor]]
) -> dict[str, Any]:
    """What is handed to ``generate``, under its names there."""
    [(images_crop, images_ori)] = images
    return {
        "input_ids": runs(input_ids),
        "images_seq_mask": runs(images_seq_mask),
        "images_spatial_crop": images_spatial_crop.tolist(),
        "images_crop": fingerprint(images_crop),
        "images_ori": fingerprint(images_ori),
        "dtypes": [str(tensor.dtype) for tensor in (input_ids, images_seq_mask, images_spatial_crop)],
    }


def resampling() -> str:
    """A fingerprint of how the installed Pillow resizes: from 13.0 on, a tall page comes out other than before."""
    resized = rgb(90, 200).resize((30, 20)).tobytes() + rgb(200, 90).resize((30, 20)).tobytes()
    return hashlib.sha256(resized).hexdigest()[:16]


def runs(row: Tensor) -> list[list[int]]:
    """Value and length of each run in a ``[1, S]`` tensor."""
    [values] = row.tolist()
    return [[int(value), len(list(run))] for value, run in groupby(values)]


def fingerprint(views: Tensor) -> str:
    data = views.contiguous().view(torch.uint8).numpy().tobytes()
    return f"{views.dtype} {list(views.shape)} sha256 {hashlib.sha256(data).hexdigest()}"
