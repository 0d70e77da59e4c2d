"""Readers that turn an option's text into its value. On a bad text they raise ``DsocrError`` with the valid ones."""

import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.base.words import did_you_mean
from pytest_dsocr.compare.tolerances import BUDGETS, NAMES, check_budget, check_tolerance
from pytest_dsocr.contract.prompt import IMAGE
from pytest_dsocr.engine.places import (
    EMBEDDED,
    HUB_NAME,
    MINI,
    SYNTHETIC_NAME,
    SYNTHETIC_SIZES,
    VALID_CHECKPOINT,
    split_model,
)
from pytest_dsocr.models import NAMES as MODELS
from pytest_dsocr.models import PRESET_NAMES, PROMPT_NAMES
from pytest_dsocr.pages.page_list import SUBSETS, is_list, no_page, page_named, read_list
from pytest_dsocr.plugin.xfails import read_ledger
from pytest_dsocr.records.config import MISSING, Level, Shard
from pytest_dsocr.records.provenance import DTYPES_OF_VENDOR, OF_VENDOR
from pytest_dsocr.subjects.loading import ENGINES, adapter_of, level_before_loading, valid_names
from pytest_dsocr.timing.limits import ANY
from pytest_dsocr.timing.rounds import QUANTITIES

EXAMPLE_OF_SLOWER = "0.05, or decode=0.05"
FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def number(kind: type[int] | type[float], what: str, least: float = math.nextafter(0, 1)) -> Callable[[str], Any]:
    """Return a reader of numbers from ``least`` on. ``what`` names them in its error."""

    def read(text: str) -> float:
        try:
            found = kind(text)
        except ValueError:
            found = kind(-1)
        if not least <= found < math.inf:
            raise DsocrError(f"{text!r} is not a number {what}")
        return found

    return read


days = number(float, "of days above 0")
seconds = number(float, "of seconds above 0")
seconds_or_none = number(float, "of seconds, 0 or more", least=0)
max_rounds = number(int, "of rounds, 1 or more")
times = number(int, "of readings, 1 or more")
tokens = number(int, "of tokens, 1 or more")
share = number(float, f"above 0, such as {EXAMPLE_OF_SLOWER}")


def one_of(*valid: str) -> Callable[[str], str]:
    """Return a reader of these words."""

    def read(text: str) -> str:
        if text not in valid:
            raise DsocrError(f"{text!r} is not one of {', '.join(valid)}{did_you_mean(text, valid)}")
        return text

    return read


model = one_of(*MODELS)
dtype = one_of("float32", "bfloat16", "float16")
attention = one_of("eager", "sdpa", "flash_attention_2")
reference_dtype, reference_attention = one_of(*DTYPES_OF_VENDOR), one_of(*OF_VENDOR)
allow_missing = one_of(*MISSING)


def as_typed(text: str) -> str:
    """Return the text unchanged, because the user of the option checks it."""
    return text


def subject(text: str) -> str:
    """Read ``engine``, ``engine:fast``, ``vendor:FOLDER``, ``package.module:factory``, or a text for an adapter."""
    if adapter := adapter_of(text):
        adapter.offers(text)
    elif text not in ENGINES and not FACTORY.fullmatch(text):
        raise DsocrError(f"{text!r} names no subject; {valid_names()}{did_you_mean(text, ENGINES)}")
    return text


def importable_subject(text: str) -> str:
    """Read a subject, and check that its factory can be imported."""
    level_before_loading(subject(text))
    return text


def checkpoint(text: str) -> str:
    """Read ``mini``, a folder, ``synthetic:NAME[@SEED]`` or a hub name, with or without ``MODEL:`` before it."""
    _, name = split_model(text)
    if name == MINI or SYNTHETIC_NAME.fullmatch(name) or Path(name).is_dir() or HUB_NAME.fullmatch(name):
        return text
    named = (*EMBEDDED, *(f"synthetic:{size}" for size in SYNTHETIC_SIZES))
    raise MachineError(f"{text!r} is not a checkpoint; {VALID_CHECKPOINT}{did_you_mean(text, named)}")


def reference(text: str) -> Path | Literal["engine"] | None:
    """Read ``recorded`` (as None), ``engine`` or a folder."""
    if text == "recorded":
        return None
    if text == "engine":
        return "engine"
    if not Path(text).is_dir():
        raise MachineError(
            f"there is no folder {text!r}; give recorded, engine, or a folder with the vendor's Python files or with "
            "recordings"
        )
    return Path(text)


def page(text: str) -> str:
    """Read an image, a folder, a readable list file, a PDF, a shipped page or a subset of the shipped pages."""
    if text not in SUBSETS and not page_named(text).exists():
        raise MachineError(no_page(text))
    if is_list(Path(text)) and not Path(text).is_dir():
        read_list(Path(text))
    return text


def readable_page(text: str) -> str:
    """Read an image or a PDF. The PDF is not opened here."""
    from pytest_dsocr.pages.named import check_any

    check_any([text])
    return text


def preset(text: str) -> str:
    """Read a preset's name."""
    if text.lower() not in PRESET_NAMES:
        raise DsocrError(
            f"there is no preset {text!r}; give one of {', '.join(PRESET_NAMES)}{did_you_mean(text, PRESET_NAMES)}"
        )
    return text.lower()


def prompt(text: str) -> str:
    """Read a prompt's name, or a text with ``<image>``."""
    if text not in PROMPT_NAMES and IMAGE not in text:
        raise DsocrError(
            f"{text!r} is not a prompt; give one of {', '.join(PROMPT_NAMES)}, or a text with {IMAGE} in it"
            + did_you_mean(text, PROMPT_NAMES)
        )
    return text


def device(text: str) -> str:
    """Read ``cpu``, or ``cuda`` or ``cuda:N`` if this machine has it."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text):
        raise DsocrError(f"{text!r} is not a device; give cpu, cuda or cuda:N")
    if text != "cpu":
        from pytest_dsocr.engine.checkpoint import device_named

        device_named(text)
    return text


def kept_answers(text: str) -> Path | Literal["off"]:
    """Read ``off`` or a folder."""
    return "off" if text == "off" else folder(text)


def reference_device(text: str) -> str:
    """Read torch's name of a device, or the kind of device of a recording."""
    if not re.fullmatch(r"cuda:\d+|\w[\w.-]*", text):
        raise DsocrError(f"{text!r} is not a device; give cpu, cuda, cuda:N, or a recording's, such as nvidia-h200")
    return text


def level(text: str) -> Level:
    """Read ``L0`` to ``L3``."""
    for one in Level:
        if str(one) == text.upper():
            return one
    raise DsocrError(f"{text!r} is not a level; give {', '.join(f'{one} ({one.meaning})' for one in Level)}")


def tolerance(text: str) -> tuple[str, float]:
    """Read ``NAME=VALUE``."""
    name, _, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        raise DsocrError(f"{text!r} is not a tolerance; give NAME=VALUE with NAME one of {', '.join(NAMES)}") from None
    if name in NAMES and NAMES[name].number is int and number.is_integer():
        number = int(number)
    check_tolerance(name, number)
    return name, number


def quantization_budget(text: str) -> Mapping[str, float]:
    """Read a precision with a budget, or ``NAME=VALUE``."""
    if text in BUDGETS:
        return BUDGETS[text]
    name, _, value = text.partition("=")
    try:
        return check_budget({name: float(value)})
    except ValueError:
        raise DsocrError(f"{text!r} is no budget; give {', '.join(BUDGETS)}, or NAME=VALUE such as kl=0.02") from None


def max_slowdown(text: str) -> tuple[str, float]:
    """Read ``STAGE=SHARE``, or ``SHARE`` for each stage."""
    name, _, value = text.rpartition("=")
    name = name or ANY
    if name not in (ANY, *QUANTITIES):
        raise DsocrError(f"there is no stage {name!r}; there are {', '.join(QUANTITIES)}")
    return name, share(value)


def shard(text: str) -> Shard:
    """Read ``i/n``, the i-th of n parts."""
    try:
        return Shard.read(text)
    except ValueError:
        raise DsocrError(f"{text!r} is not a part of a run; give i/n with i from 1 to n, such as 1/4") from None


def ledger(text: str) -> Path:
    """Read the path of a readable ledger of known failures."""
    if not Path(text).is_file():
        raise DsocrError(f"there is no file {text!r}; give one, or leave the option out")
    return read_ledger(Path(text)).path


def present_folder(text: str) -> Path:
    """Read a folder that exists."""
    if not Path(text).is_dir():
        raise MachineError(f"there is no folder {text!r}; give one, or leave the option out")
    return Path(text)


def folder(text: str) -> Path:
    """Read a folder that exists or can be made."""
    if not text or Path(text).is_file():
        raise DsocrError(f"{text!r} is not a folder; give one, which is made if it does not exist")
    return Path(text)


def new_folder(text: str) -> Path:
    """Read a folder for output, and make it."""
    try:
        folder(text).mkdir(parents=True, exist_ok=True)
        if os.access(text, os.W_OK):
            return Path(text)
        why = "it may not be written to"
    except OSError as error:
        why = str(error.strerror)
    raise DsocrError(f"{text} cannot be made or written to ({why}); give another folder")


def new_file(text: str) -> str:
    """Read a file for output, and check that it can be written."""
    try:
        if Path(text).is_dir():
            raise DsocrError(f"{text!r} is a folder; give a file")
        with TemporaryFile(dir=Path(text).parent):
            return text
    except OSError as error:
        raise DsocrError(f"{text} cannot be written ({error.strerror}); give another file") from error


def yes_or_no(text: str) -> bool:
    """Read a switch as an ini file has it: true or false."""
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise DsocrError(f"{text!r} is neither yes nor no; give {' or '.join(('true', 'false'))}")
    return words[text.lower()]
