"""The vendor's own model object behind the session's stages, in an environment in which its code runs."""

from __future__ import annotations

import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dsocr.engine.session import Session
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.engine.vendor_model import VendorModel
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.reference.environment.environment import PINS
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionSubject

if TYPE_CHECKING:
    from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime

TRANSFORMERS = "transformers"
[PIN] = [pin for pin in PINS if pin.startswith(f"{TRANSFORMERS}==")]
SERIES = PIN.partition("==")[2].rpartition(".")[0]
"""The releases that the vendor's code can be imported with, such as 4.46."""


class VendorSubject(SessionSubject):
    """The vendor's model, which decodes one page at a time."""

    read_many: Any = None


def vendor_subject(folder: Path, setup: Setup) -> VendorSubject:
    """Load the vendor's model from the Python files in ``folder``, with a checkpoint's weights.

    Raises:
        DsocrError: where its code does not run here, or a file, the checkpoint or the device is not available.
    """
    vendor = vendor_runtime(folder, setup)
    return VendorSubject(Session(VendorModel(vendor.model), Tokenizer.wrap(vendor.tokenizer)))


def vendor_runtime(folder: Path, setup: Setup) -> VendorRuntime:
    """Load code that was written as the vendor's, with a checkpoint's weights.

    Raises:
        DsocrError: where it does not run here, or a file, the checkpoint or the device is not available.
    """
    check_environment(folder)
    from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime

    with warnings.catch_warnings(action="ignore"):  # its packages' own, which pytest may turn into errors
        return VendorRuntime.load(
            folder, setup.checkpoint, device=setup.device, dtype=setup.dtype, attention=setup.attention
        )


def check_environment(folder: Path) -> None:
    """Raise ``DsocrError`` where code that was written as the vendor's, in ``folder``, cannot run."""
    try:
        installed = version(TRANSFORMERS)
    except PackageNotFoundError:
        installed = "none"
    if not installed.startswith(f"{SERIES}."):
        raise DsocrError(
            f"the vendor's code in {folder} runs with {TRANSFORMERS} {SERIES} and here is {installed}; run pytest in "
            f"an environment with {', '.join(PINS)}, or give this folder as the reference, which has one of its own"
        )
