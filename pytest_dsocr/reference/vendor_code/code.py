"""Import the vendor's files from a folder that the user named, for an environment that has transformers 4.46."""

from __future__ import annotations

import hashlib
import importlib
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.reference.environment.environment import PINS
from pytest_dsocr.reference.vendor_code.files import FILES, check_vendor_folder
from pytest_dsocr.reference.vendor_code.torchvision_stand_in import stand_in_for_torchvision

IMPORTED_AS = "dsocr_vendor_code"


@dataclass(frozen=True)
class VendorCode:
    """The vendor's imported modules, the hashes of their files, and what was overridden to import them."""

    modeling: Any
    encoder: Any
    sha256: dict[str, str]
    overrides: tuple[str, ...]


def load_vendor_code(folder: Path) -> VendorCode:
    """Import the vendor's files from ``folder`` as one package.

    Raises:
        DsocrError: where a file is missing, or the environment cannot import it.
    """
    check_vendor_folder(folder)
    overrides = stand_in_for_torchvision()
    for name in [name for name in sys.modules if name.split(".")[0] == IMPORTED_AS]:
        del sys.modules[name]  # of a folder loaded before
    package = ModuleType(IMPORTED_AS)
    package.__path__ = [str(folder)]
    sys.modules[IMPORTED_AS] = package
    try:
        with tempfile.TemporaryDirectory() as nowhere, replaced(sys, {"pycache_prefix": nowhere}):
            # Compiled again: a stale __pycache__ would run older code than the hashes below are of.
            modeling = importlib.import_module(f"{IMPORTED_AS}.modeling_deepseekocr")
    except ImportError as error:
        raise DsocrError(
            f"the vendor's code cannot be imported here ({error}); run in an environment with {', '.join(PINS)}"
        ) from error
    imported = {name: sys.modules[f"{IMPORTED_AS}.{Path(name).stem}"].__file__ for name in FILES}
    sha256 = {name: hashlib.sha256(Path(str(path)).read_bytes()).hexdigest() for name, path in imported.items()}
    return VendorCode(modeling, sys.modules[f"{IMPORTED_AS}.deepencoder"], sha256, tuple(overrides))


@contextmanager
def vendor_on_cpu(model: Any) -> Iterator[None]:
    """Let the vendor's hard-coded ``.cuda()`` and bf16 pixels work on a CPU model of any dtype."""

    def to_weights(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        dtype = next(module.parameters()).dtype
        return tuple(arg.to(dtype) for arg in args)

    hook = model.model.sam_model.register_forward_pre_hook(to_weights)
    try:
        with cuda_stays():
            yield
    finally:
        hook.remove()


@contextmanager
def cuda_stays() -> Iterator[None]:
    """Make ``Tensor.cuda`` leave a tensor where it is."""
    with replaced(Tensor, {"cuda": lambda tensor, *_, **__: tensor}):
        yield


@contextmanager
def replaced(module: object, values: dict[str, Any]) -> Iterator[None]:
    """Give attributes of ``module`` other values for a while."""
    saved = {name: getattr(module, name) for name in values}
    try:
        for name, value in values.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in saved.items():
            setattr(module, name, value)
