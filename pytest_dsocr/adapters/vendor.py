"""``vendor:FOLDER`` and ``fork:FOLDER``: the vendor's model object, or a changed copy's, run in the engine's stages.

Both run in the vendor's environment, at level 3. For ``vendor:`` the engine prepares and reads pages; for
``fork:`` the copy's own ``infer`` does, since a fork usually changes that.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.provenance import versions
from pytest_dsocr.reference.environment import PINS, SERIES, check_vendor_folder
from pytest_dsocr.subjects.loading import FORK, VENDOR
from pytest_dsocr.subjects.protocol import Offers, OpenSubject, Setup

if TYPE_CHECKING:
    from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime

LEVEL = Level.MODULES
OWN_PROCESS = False


def offers(spec: str) -> Offers:
    """Return that all is offered; raise ``DsocrError`` if the folder lacks one of the vendor's files."""
    check_vendor_folder(_folder(spec))
    return Offers()


def subject(spec: str, setup: Setup) -> OpenSubject:
    """Load the model in the folder with a checkpoint's weights.

    Raises:
        DsocrError: where its code does not run here, or a file, the checkpoint or the device is not available.
    """
    runtime = vendor_runtime(_folder(spec), setup)
    from pytest_dsocr.adapters.wrapped import ForkSubject, VendorSubject

    return ForkSubject(runtime) if spec.startswith(FORK) else VendorSubject(runtime)


def vendor_runtime(folder: Path, setup: Setup) -> VendorRuntime:
    """Load code with the vendor's interface, with a checkpoint's weights.

    Raises:
        DsocrError: if it does not run here, or a file, the checkpoint or the device is not available.
    """
    check_environment(folder)
    from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime

    with warnings.catch_warnings(action="ignore"):  # of its packages; pytest may turn them into errors
        return VendorRuntime.load(
            folder, setup.checkpoint, device=setup.device, dtype=setup.dtype, attention=setup.attention
        )


def check_environment(folder: Path) -> None:
    """Raise ``DsocrError`` where code that was written as the vendor's, in ``folder``, cannot run."""
    installed = versions().get("transformers", "none")
    if not installed.startswith(f"{SERIES}."):
        raise DsocrError(
            f"the vendor's code in {folder} runs with transformers {SERIES} and here is {installed}; run pytest in "
            f"an environment with {', '.join(PINS)}, or give this folder as the reference, which has one of its own"
        )


def _folder(spec: str) -> Path:
    return Path(spec.removeprefix(FORK).removeprefix(VENDOR))
