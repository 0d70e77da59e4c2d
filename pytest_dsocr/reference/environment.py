"""The vendor's files, the environment that they need, and commands for its interpreter."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import site
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.spec import ModelSpec

VENDOR_FILES = frozenset(name for family in MODELS.values() for name in family.vendor.files)


def family_in(folder: Path) -> ModelSpec | None:
    """Return the model whose code is in a folder, by the file with its class; None if there is none."""
    return next((family for family in MODELS.values() if (folder / family.vendor.files[0]).is_file()), None)


def family_with(files: Collection[str]) -> ModelSpec:
    """Return the model that most of these files of a vendor belong to.

    Raises:
        DsocrError: if none of them is a vendor's file.
    """
    found = max(MODELS.values(), key=lambda family: len({*files} & {*family.vendor.files}))
    if not {*files} & {*found.vendor.files}:
        raise DsocrError(f"{', '.join(files)} are not the vendor's files of a known model ({', '.join(MODELS)})")
    return found


def check_vendor_folder(folder: Path) -> ModelSpec:
    """Return the model whose code is in a folder; raise ``DsocrError`` if a file of the vendor's is missing."""
    family = family_in(folder)
    if family is None:
        known = ", ".join(family.vendor.files[0] for family in MODELS.values())
        raise MachineError(
            f"{folder} lacks a file with the model's class ({known}); give a folder with the vendor's files"
        )
    missing = [name for name in family.vendor.files if not (folder / name).is_file()]
    if missing:
        raise MachineError(f"{folder} lacks {', '.join(missing)}; give a folder with the vendor's Python files")
    return family


PINS = tuple(Path(__file__).with_name("requirements.txt").read_text(encoding="utf-8").split())
[_TRANSFORMERS] = (pin for pin in PINS if pin.startswith("transformers=="))
SERIES = _TRANSFORMERS.partition("==")[2].rpartition(".")[0]
"""Series of transformers with which the vendor's code can be imported, such as 4.46."""
SHARED = ("torch", "pillow", "numpy")
"""Packages that need the same version on both sides: Pillow makes the pixels, and torch rounds."""

STAMP = "dsocr-environment.json"
"""File that setup writes last; an environment without it is incomplete."""

MARK = "dsocr-setup.lock"
"""File that setup writes first and locks while it works; setup clears only folders that contain it."""

_BOOT = """\
import importlib.util, runpy, sys
folder, module = sys.argv.pop(1), sys.argv.pop(1)
where = {"location": f"{folder}/__init__.py", "submodule_search_locations": [folder]}
spec = importlib.util.spec_from_file_location("pytest_dsocr", **where)
package = importlib.util.module_from_spec(spec)
sys.modules["pytest_dsocr"] = package
spec.loader.exec_module(package)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class EnvironmentPlan:
    """Contents of an environment; equal plans make equal environments."""

    python: str
    """Version of the caller's interpreter, which makes the environment."""
    pins: tuple[str, ...]
    """Requirements of the vendor's code, and the packages shared with the caller."""
    extra: tuple[str, ...]
    """Requirements that the user added."""
    torch_from: tuple[str, ...]
    """Folders of the caller's packages, to reuse its torch; empty if the environment has its own."""

    @property
    def folder(self) -> Path:
        """Default folder, in the user's cache."""
        digest = hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()
        return cache_folder() / f"vendor-{digest[:12]}"

    def serves(self, other: EnvironmentPlan) -> bool:
        """Return whether an environment made by this plan can replace one made by ``other``, extras aside."""
        return (self.python, self.pins) == (other.python, other.pins) and self.torch_from in ((), other.torch_from)


@dataclass(frozen=True)
class Stamp:
    """Description of a complete environment, written by setup."""

    plan: EnvironmentPlan
    versions: Mapping[str, str]
    """Installed versions of the packages in the plan."""
    date: str


def plan_here(*, reuse_torch: bool = False, extra: tuple[str, ...] = ()) -> EnvironmentPlan:
    """Plan an environment with the caller's versions of shared packages.

    Raises:
        DsocrError: if the caller lacks a shared package.
    """
    shared = tuple(f"{name}=={_version_here(name)}" for name in SHARED)
    return EnvironmentPlan(
        platform.python_version(), (*shared, *PINS), extra, _package_folders() if reuse_torch else ()
    )


def find_environment(given: Path | None) -> Path:
    """Find the interpreter of the vendor's environment.

    Args:
        given: folder of any virtual environment. The default is ``DSOCR_VENDOR_ENV``, or else the last one that was set
            up in the user's cache for this interpreter and these versions.

    Raises:
        DsocrError: if there is none.
    """
    folder = named_folder(given)
    if folder is None:
        return interpreter(_last_set_up())
    if not interpreter(folder).exists():
        raise MachineError(
            f"{folder} is not a virtual environment: it has no {interpreter(Path())}; name another, or create it with "
            f"`dsocr vendor setup DIR --env {folder}`"
        )
    if (folder / MARK).exists() and not read_stamp(folder):
        raise MachineError(f"{folder} is incomplete; finish it with `dsocr vendor setup DIR --env {folder}`")
    return interpreter(folder)


def named_folder(given: Path | None) -> Path | None:
    """Return the environment's folder that the command line or ``DSOCR_VENDOR_ENV`` names."""
    named = given or os.environ.get("DSOCR_VENDOR_ENV")
    return Path(named).expanduser().absolute() if named else None


def interpreter(folder: Path) -> Path:
    """Return the interpreter of the virtual environment in ``folder``."""
    return folder / "bin" / "python"


def read_stamp(folder: Path) -> Stamp | None:
    """Read the stamp of a complete environment; return None if it is missing or damaged."""
    from pytest_dsocr.base.reading import Format  # needs packages that an incomplete environment lacks

    with suppress(DsocrError):
        stamps = Format(Stamp, "run dsocr vendor setup again", MachineError)
        return stamps.read(folder / STAMP) if interpreter(folder).exists() else None
    return None


def command_in(python: Path, module: str, *arguments: str, apart: bool = True) -> list[str]:
    """Return the command that runs a module of this package with another interpreter.

    The interpreter imports this package from its present folder, and nothing else of the caller's. If it is not kept
    ``apart``, it also follows Python's environment variables, but imports nothing from the current folder.
    """
    return [str(python), "-I" if apart else "-P", "-c", _BOOT, str(Path(__file__).parents[1]), module, *arguments]


def cache_folder() -> Path:
    """Return this project's folder in the user's cache."""
    named = os.environ.get("XDG_CACHE_HOME")
    usual = "Library/Caches" if sys.platform == "darwin" else ".cache"
    return (Path(named) if named else Path.home() / usual) / "pytest-dsocr"


def modules_cache() -> Path:
    """Return the folder to which transformers copies the code of models."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    named = os.environ.get("HF_MODULES_CACHE") or Path(os.environ.get("HF_HOME") or usual) / "modules"
    return Path(named) / "transformers_modules"


def copies_of(folder: Path, cache: Path) -> list[Path]:
    """Return other folders below ``cache`` with the same model's code as in ``folder``."""
    found = cache.rglob(check_vendor_folder(folder).vendor.files[0])
    return sorted(path.parent for path in found if not path.parent.samefile(folder))


def _last_set_up() -> Path:
    here = plan_here(reuse_torch=True)
    stamps = {folder: read_stamp(folder) for folder in cache_folder().glob("vendor-*")}
    made = [folder for folder, stamp in stamps.items() if stamp and stamp.plan.serves(here)]
    if not made:
        raise MachineError(
            f"there is no environment for the vendor's code with Python {here.python} and {', '.join(here.pins[:3])} "
            "here; create it with `dsocr vendor setup DIR`, or name one with --env"
        )
    return max(made, key=lambda folder: (folder / STAMP).stat().st_mtime_ns)


def _version_here(name: str) -> str:
    try:
        return metadata.version(name).split("+")[0]  # an index has 2.13.0, not 2.13.0+cpu
    except metadata.PackageNotFoundError as error:
        raise MachineError(f"this environment has no {name}; install pytest-dsocr with its dependencies") from error


def _package_folders() -> tuple[str, ...]:
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(folder for folder in folders if folder in sys.path)
