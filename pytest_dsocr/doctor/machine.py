"""Python and its packages, torch, the driver, the GPUs, the disk; and every check, one after the other."""

import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import torch as installed
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.words import count
from pytest_dsocr.doctor import inputs
from pytest_dsocr.doctor.finding import ExaminedRun, Finding, Severity
from pytest_dsocr.engine.checkpoint import device_named, dtype_named, resolve
from pytest_dsocr.engine.model import weights_bytes
from pytest_dsocr.layers.attention import attention_function
from pytest_dsocr.reference.environment import cache_folder
from pytest_dsocr.timing.probe.machine import Gpu

GIB = 1024**3
FEW_GIB, FEWEST_GIB = 10.0, 1.0
"""Free disk below which a note is made, and below which a run will hardly end."""
ALLOWANCE = 1.25
"""Memory that a model takes on its GPU, over that of its weights."""
US = "pytest-dsocr"


def python(wanted: ExaminedRun) -> Iterator[Finding]:
    """Compare Python and the installed packages with what this package requires."""
    version = platform.python_version()
    try:
        said = metadata.metadata(US)
    except metadata.PackageNotFoundError:
        yield Finding("python", Severity.OK, version)
        message = f"{US} is not installed and used from {Path(__file__).parents[2]}; what it needs was not looked at"
        yield Finding("packages", Severity.NOTE, message)
        return
    allowed = SpecifierSet(said["Requires-Python"])
    level = Severity.OK if version in allowed else Severity.FAULT
    yield Finding("python", level, version, f"install Python {allowed}" if level is Severity.FAULT else "")
    unmet = [why for text in metadata.requires(US) or () if (why := _unmet(Requirement(text)))]
    if unmet:
        yield Finding("packages", Severity.FAULT, ", ".join(unmet), f"pip install --upgrade {US}")
    else:
        yield Finding("packages", Severity.OK, f"{US} {said['Version']}, and every package that it needs")


def torch(wanted: ExaminedRun) -> Iterator[Finding]:
    """Look whether torch has the device and the attention."""
    cuda = installed.version.cuda
    message = f"{installed.__version__}, {f'built for CUDA {cuda}' if cuda else 'without CUDA'}"
    if not wanted.on_gpu:
        yield Finding("torch", Severity.OK, f"{message}, for {wanted.device}")
    elif cuda is None:
        yield Finding("torch", Severity.FAULT, message, f"install a CUDA build of it, for {wanted.device}")
    else:
        try:
            device_named(wanted.device)
            yield Finding("torch", Severity.OK, f"{message}, {count(installed.cuda.device_count(), 'GPU')}")
        except DsocrError as error:
            yield Finding("torch", Severity.FAULT, f"{message}; {error}", _visible())


def attention(wanted: ExaminedRun) -> Iterator[Finding]:
    """Look whether the attention's kernel is there, and has a GPU where it needs one."""
    attention_function(wanted.attention)
    if wanted.attention == "flash_attention_2" and not wanted.on_gpu:
        message = f"{wanted.attention} runs on a GPU alone, and the device is {wanted.device}"
        yield Finding("attention", Severity.FAULT, message, "--device=cuda, or --attention=eager")
    else:
        yield Finding("attention", Severity.OK, wanted.attention)


def gpus(wanted: ExaminedRun) -> Iterator[Finding]:
    """Look at the driver and at each GPU: memory, clocks, heat, who else is there."""
    if not wanted.on_gpu:
        yield Finding("gpu", Severity.OK, f"none is needed for {wanted.device}")
        return
    if not installed.cuda.is_available():
        yield Finding("gpu", Severity.FAULT, "torch finds none", _visible())
        return
    gpu = Gpu.of(wanted.device)
    if gpu is None:
        why = "nvidia-ml-py is not installed, or the driver hides the GPU; clocks and other processes are not seen"
        yield Finding("driver", Severity.NOTE, why, f"pip install '{US}[gpu]'")
    else:
        yield Finding("driver", Severity.OK, ", ".join(f"{name} {value}" for name, value in gpu.identity.items()))
    for number in range(installed.cuda.device_count()):
        yield _gpu(wanted, f"cuda:{number}")


def disk(wanted: ExaminedRun) -> Iterator[Finding]:
    """Look for room where a run writes: results, temporary files, the user's cache."""
    for what, place in (("out", wanted.out), ("temporary", Path(tempfile.gettempdir())), ("cache", cache_folder())):
        there = next(folder for folder in (place.absolute(), *place.absolute().parents) if folder.is_dir())
        free = shutil.disk_usage(there).free / GIB
        level = Severity.FAULT if free < FEWEST_GIB else Severity.NOTE if free < FEW_GIB else Severity.OK
        if not os.access(there, os.W_OK):
            yield Finding(
                f"disk, {what}", Severity.FAULT, f"{there} cannot be written", "name another folder, or allow it"
            )
        else:
            todo = "make room, or name another folder" if level is not Severity.OK else ""
            yield Finding(f"disk, {what}", level, f"{free:.1f} GiB free in {there}", todo)


def _gpu(wanted: ExaminedRun, name: str) -> Finding:
    free, total = installed.cuda.mem_get_info(name)
    gpu = Gpu.of(name)
    values, spoilt = gpu.look({os.getpid()}) if gpu else ({}, [])
    message = f"{installed.cuda.get_device_name(name)}, {free / GIB:.1f} of {total / GIB:.1f} GiB free"
    message += "".join(f", {key} {value:g}" for key, value in values.items())
    wants = wanted_bytes(wanted) * ALLOWANCE * (2 if wanted.vendor else 1)
    if free < wants:
        return Finding(name, Severity.FAULT, message, f"{wants / GIB:.1f} GiB are needed; end what holds its memory")
    if spoilt:
        return Finding(name, Severity.NOTE, f"{message}; {', '.join(spoilt)}", "take no times until that is over")
    return Finding(name, Severity.OK, message)


def wanted_bytes(wanted: ExaminedRun) -> int:
    """Return the bytes of the model's weights in the dtype of the run."""
    try:
        architecture = resolve(wanted.checkpoint).architecture
    except DsocrError:  # reported by the check of the weights
        return 0
    return weights_bytes(architecture, dtype_named(wanted.dtype))


def _unmet(requirement: Requirement) -> str:
    """Say how an installed package is not what is required; nothing of extras, which no run needs by itself."""
    if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
        return ""
    try:
        found = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} is not installed"
    if requirement.specifier.contains(found, prereleases=True):
        return ""
    return f"{requirement.name} is {found}, and {requirement.specifier} is needed"


def _visible() -> str:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    limit = "" if named is None else f" (CUDA_VISIBLE_DEVICES is {named!r})"
    return f"see that nvidia-smi lists it, and that this process may see it{limit}"


CHECKS: dict[str, Callable[[ExaminedRun], Iterator[Finding]]] = {
    "python": python,
    "torch": torch,
    "attention": attention,
    "gpu": gpus,
    "weights": inputs.weights,
    "pages": inputs.pages,
    "vendor": inputs.vendor,
    "vendor's env": inputs.environment,
    "recordings": inputs.recordings,
    "pillow": inputs.pillow,
    "baselines": inputs.baselines,
    "disk": disk,
}


def examine(wanted: ExaminedRun) -> Iterator[Finding]:
    """Yield what each check finds."""
    for name, check in CHECKS.items():
        try:
            yield from check(wanted)
        except DsocrError as error:
            yield Finding(name, Severity.FAULT, str(error))
        except Exception as error:  # a broken machine breaks in ways that nobody has thought of
            yield Finding(name, Severity.FAULT, f"the check broke down: {type(error).__name__}: {error}")
