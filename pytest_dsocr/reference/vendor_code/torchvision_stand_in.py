"""A stand-in for the three transforms of torchvision that the vendor's code uses, where torchvision is not installed.

Their arithmetic is torchvision's, to the last bit.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor


def stand_in_for_torchvision() -> list[str]:
    """Let ``import torchvision`` work; give what was overridden for it: nothing where the real one is installed."""
    spec = importlib.util.find_spec("torchvision")
    if spec is not None and spec.loader is not None:
        return []
    if spec is None:
        _make_stand_in()
    return ["torchvision: a stand-in for ToTensor, Normalize and Compose"]


class _ToTensor:
    """torchvision's transform of an RGB image: float32 in [0, 1], channels first."""

    def __call__(self, image: Any) -> Tensor:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div(255)


class _Normalize:
    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self.mean, self.std = torch.tensor(mean)[:, None, None], torch.tensor(std)[:, None, None]

    def __call__(self, image: Tensor) -> Tensor:
        return image.sub(self.mean).div(self.std)


class _Compose:
    def __init__(self, transforms: list[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


def _make_stand_in() -> None:
    names = ("torchvision", "torchvision.transforms", "torchvision.transforms.functional")
    package, transforms, functional = (ModuleType(name) for name in names)
    package.__dict__.update(transforms=transforms)
    transforms.__dict__.update(ToTensor=_ToTensor, Normalize=_Normalize, Compose=_Compose, functional=functional)
    functional.__dict__.update(InterpolationMode=type("InterpolationMode", (), {}))
    for name, module in zip(names, (package, transforms, functional), strict=True):
        module.__spec__ = importlib.util.spec_from_loader(name, loader=None)
        sys.modules[name] = module
