"""Checks of Python and its packages, torch, the driver, GPUs and disks; and the table of all checks."""

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
from pytest_dsocr.doctor.finding import FAULT, NOTE, OK, ExaminedRun, Finding
from pytest_dsocr.engine.checkpoint import device_named, dtype_named, resolve
from pytest_dsocr.engine.model import weights_bytes
from pytest_dsocr.layers.attention import attention_function
from pytest_dsocr.reference.environment import cache_folder
from pytest_dsocr.timing.probe.machine import Gpu

GIB = 1024**3
FEW_GIB, FEWEST_GIB = 10.0, 1.0
"""Free disk space that deserves a note, and space with which a run hardly ends."""
ALLOWANCE = 1.25
"""GPU memory that a model takes, divided by the size of its weights."""
US = "pytest-dsocr"


def python(wanted: ExaminedRun) -> Iterator[Finding]:
    """Compare Python and the installed packages with what this package requires."""
    version = platform.python_version()
    try:
        said = metadata.metadata(US)
    except metadata.PackageNotFoundError:
        yield OK("python", version)
        message = f"{US} is used from {Path(__file__).parents[2]} and not installed; its requirements were not checked"
        yield NOTE("packages", message)
        return
    allowed = SpecifierSet(said["Requires-Python"])
    level = OK if version in allowed else FAULT
    yield level("python", version, f"install Python {allowed}" if level is FAULT else "")
    unmet = [why for text in metadata.requires(US) or () if (why := _unmet(Requirement(text)))]
    if unmet:
        yield FAULT("packages", ", ".join(unmet), f"pip install --upgrade {US}")
    else:
        yield OK("packages", f"{US} {said['Version']} and every package that it requires")


def torch(wanted: ExaminedRun) -> Iterator[Finding]:
    """Check that torch supports the device."""
    cuda = installed.version.cuda
    message = f"{installed.__version__}, {f'built for CUDA {cuda}' if cuda else 'without CUDA'}"
    if not wanted.on_gpu:
        yield OK("torch", f"{message}, for {wanted.device}")
    elif cuda is None:
        yield FAULT("torch", message, f"install a CUDA build of it, for {wanted.device}")
    else:
        try:
            device_named(wanted.device)
            yield OK("torch", f"{message}, {count(installed.cuda.device_count(), 'GPU')}")
        except DsocrError as error:
            yield FAULT("torch", f"{message}; {error}", _visible())


def attention(wanted: ExaminedRun) -> Iterator[Finding]:
    """Check that the attention's kernel is installed, and that it has the GPU that it needs."""
    attention_function(wanted.attention)
    if wanted.attention == "flash_attention_2" and not wanted.on_gpu:
        message = f"{wanted.attention} runs only on a GPU, and the device is {wanted.device}"
        yield FAULT("attention", message, "--device=cuda, or --attention=eager")
    else:
        yield OK("attention", wanted.attention)


def gpus(wanted: ExaminedRun) -> Iterator[Finding]:
    """Check the driver, and of each GPU its memory, clocks, temperature and other processes."""
    if not wanted.on_gpu:
        yield OK("gpu", f"none is needed for {wanted.device}")
        return
    if not installed.cuda.is_available():
        yield FAULT("gpu", "torch finds none", _visible())
        return
    gpu = Gpu.of(wanted.device)
    if gpu is None:
        why = "nvidia-ml-py is not installed, or the driver hides the GPU; clocks and other processes cannot be checked"
        yield NOTE("driver", why, f"pip install '{US}[gpu]'")
    else:
        yield OK("driver", ", ".join(f"{name} {value}" for name, value in gpu.identity.items()))
    for number in range(installed.cuda.device_count()):
        yield _gpu(wanted, f"cuda:{number}")


def disk(wanted: ExaminedRun) -> Iterator[Finding]:
    """Check free space for results, temporary files and the user's cache."""
    for what, place in (("out", wanted.out), ("temporary", Path(tempfile.gettempdir())), ("cache", cache_folder())):
        there = next(folder for folder in (place.absolute(), *place.absolute().parents) if folder.is_dir())
        free = shutil.disk_usage(there).free / GIB
        level = FAULT if free < FEWEST_GIB else NOTE if free < FEW_GIB else OK
        if not os.access(there, os.W_OK):
            yield FAULT(f"disk, {what}", f"{there} is not writable", "name another, or change its permissions")
        else:
            todo = "make room or name another folder" if level is not OK else ""
            yield level(f"disk, {what}", f"{free:.1f} GiB free in {there}", todo)


def _gpu(wanted: ExaminedRun, name: str) -> Finding:
    free, total = installed.cuda.mem_get_info(name)
    gpu = Gpu.of(name)
    values, spoilt = gpu.look({os.getpid()}) if gpu else ({}, [])
    message = f"{installed.cuda.get_device_name(name)}, {free / GIB:.1f} of {total / GIB:.1f} GiB free"
    message += "".join(f", {key} {value:g}" for key, value in values.items())
    wants = wanted_bytes(wanted) * ALLOWANCE * (2 if wanted.vendor else 1)
    if free < wants:
        return FAULT(name, message, f"the run needs {wants / GIB:.1f} GiB; end the processes that use its memory")
    if spoilt:
        return NOTE(name, f"{message}; {', '.join(spoilt)}", "measure no times until that has ended")
    return OK(name, message)


def wanted_bytes(wanted: ExaminedRun) -> int:
    """Return the bytes of the model's weights in the dtype of the run."""
    try:
        architecture = resolve(wanted.checkpoint).architecture
    except DsocrError:  # reported by the check of the weights
        return 0
    return weights_bytes(architecture, dtype_named(wanted.dtype))


def _unmet(requirement: Requirement) -> str:
    """Say why a requirement is not met; return an empty text if it is, or if only an extra needs it."""
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
    return f"check that nvidia-smi lists it and that this process may use it{limit}"


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
    """Run every check and yield its findings."""
    for name, check in CHECKS.items():
        try:
            yield from check(wanted)
        except DsocrError as error:
            yield FAULT(name, str(error))
        except Exception as error:  # a broken machine fails in unexpected ways
            yield FAULT(name, f"the check itself failed: {type(error).__name__}: {error}")
