"""Import the vendor's files from the user's folder, in an environment with transformers 4.46."""

import hashlib
import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.models import model_of_class
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.reference.environment import PINS, check_vendor_folder

IMPORTED_AS = "dsocr_vendor_code"


@dataclass(frozen=True)
class VendorCode:
    """The vendor's imported modules, the hashes of their files, and the overrides of the import."""

    family: ModelSpec
    modeling: Any
    encoder: Any
    sha256: dict[str, str]
    overrides: tuple[str, ...]


def load_vendor_code(folder: Path) -> VendorCode:
    """Import the vendor's files from ``folder`` as one package.

    Raises:
        DsocrError: if a file is missing, or the environment cannot import it.
    """
    family = check_vendor_folder(folder)
    files = family.vendor.files
    overrides = stand_in_for_torchvision()
    for name in [name for name in sys.modules if name.split(".")[0] == IMPORTED_AS]:
        del sys.modules[name]  # modules of another folder
    package = ModuleType(IMPORTED_AS)
    package.__path__ = [str(folder)]
    sys.modules[IMPORTED_AS] = package
    try:
        with tempfile.TemporaryDirectory() as nowhere, mock.patch.object(sys, "pycache_prefix", nowhere):
            # A stale __pycache__ would run older code than the hashes below describe.
            modeling = importlib.import_module(f"{IMPORTED_AS}.{Path(files[0]).stem}")
    except ImportError as error:
        raise DsocrError(
            f"the vendor's code cannot be imported here ({error}); run in an environment with {', '.join(PINS)}"
        ) from error
    imported = {name: sys.modules[f"{IMPORTED_AS}.{Path(name).stem}"].__file__ for name in files}
    sha256 = {name: hashlib.sha256(Path(str(path)).read_bytes()).hexdigest() for name, path in imported.items()}
    encoder = sys.modules[modeling.MlpProjector.__module__]
    return VendorCode(family, modeling, encoder, sha256, tuple(overrides))


@contextmanager
def vendor_on_cpu(model: Any) -> Iterator[None]:
    """Let the vendor's hard-coded ``.cuda()`` and bf16 pixels work on a CPU model of any dtype."""

    def to_weights(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        dtype = next(module.parameters()).dtype
        return tuple(arg.to(dtype) for arg in args)

    first, *_ = model_of_class(type(model)).of_views
    hook = model.get_submodule(first.module).register_forward_pre_hook(to_weights)
    try:
        with cuda_stays():
            yield
    finally:
        hook.remove()


def cuda_stays() -> AbstractContextManager[Any]:
    """Return a context in which ``Tensor.cuda`` returns the tensor itself."""
    return mock.patch.object(Tensor, "cuda", lambda tensor, *_, **__: tensor)


def stand_in_for_torchvision() -> list[str]:
    """Make ``import torchvision`` work; return the overrides, none if the real package is installed."""
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
    functional.__dict__.update(InterpolationMode=type("InterpolationMode", (), {"BICUBIC": "bicubic"}))
    transforms.__dict__.update(ToTensor=_ToTensor, Normalize=_Normalize, Compose=_Compose, functional=functional)
    transforms.__dict__.update(InterpolationMode=vars(functional)["InterpolationMode"])
    for name, module in zip(names, (package, transforms, functional), strict=True):
        module.__spec__ = importlib.util.spec_from_loader(name, loader=None)
        sys.modules[name] = module
