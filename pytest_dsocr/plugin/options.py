"""Every option, said once: command line over environment over ini file over default, resolved to one frozen config."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.contract.policy import VENDOR_MAX_NEW_TOKENS
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.judge.config import MISSING, Config
from pytest_dsocr.observation.provenance import DTYPES_OF_VENDOR, OF_VENDOR
from pytest_dsocr.pages.page_list import SUBSETS
from pytest_dsocr.plugin import option_values as read
from pytest_dsocr.reference.goldens import golden_folder

PREFIX = "dsocr"
DTYPES = ("float32", "bfloat16", "float16")
ATTENTIONS = ("eager", "sdpa", "flash_attention_2")
WORDS = {"checkpoint": ("mini",), "reference": ("recorded", "session")}
"""Of an option that takes paths, what is none, though there be a file of that name; that is then ``./mini``."""


@dataclass(frozen=True)
class Option:
    """One option: ``--dsocr-NAME``, ``dsocr_NAME`` in the ini file, ``DSOCR_NAME`` in the environment."""

    name: str
    default: Any
    read: Callable[[str], Any]
    """Raises ``DsocrError`` on a bad value."""
    help: str
    metavar: str = "NAME"
    many: bool = False
    """May be given several times; in the ini file and the environment one a line."""

    @property
    def flag(self) -> str:
        """On the command line."""
        return f"--{PREFIX}-{self.name.replace('_', '-')}"

    @property
    def ini(self) -> str:
        """In the ini file."""
        return f"{PREFIX}_{self.name}"

    @property
    def env(self) -> str:
        """In the environment."""
        return self.ini.upper()

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value on the command line."""
        return self.read is read.yes_or_no


OPTIONS = (
    Option("subject", "session", read.subject, "session, vendor:FOLDER, or package.module:factory", "SUBJECT"),
    Option("isolate", False, read.yes_or_no, "run the subject in a process of its own, which it may lose"),
    Option(
        "subject_time_limit",
        3600.0,
        read.seconds,
        "seconds for one call of the subject's: reading a page, a stage, a step",
        "SECONDS",
    ),
    Option("checkpoint", "mini", read.checkpoint, "mini, a folder, synthetic:NAME, or a hub name", "CHECKPOINT"),
    Option(
        "reference",
        None,
        read.reference,
        "recorded, session (where nothing is recorded), a folder with the vendor's files to run live, or of recordings",
        "REFERENCE",
    ),
    Option(
        "vendor_env",
        None,
        read.present_folder,
        "environment of the vendor's code; the one that dsocr vendor setup made, if left out",
        "FOLDER",
    ),
    Option("time_limit", 600.0, read.seconds, "seconds without a sign of the live reference's progress", "SECONDS"),
    Option(
        "pages", ("dev-3",), read.page, f"image, folder, list file, PDF, or {', '.join(SUBSETS)}", "PAGES", many=True
    ),
    Option("presets", ("gundam",), read.preset, "tiny, small, base, large or gundam", "PRESET", many=True),
    Option("prompts", ("markdown",), read.prompt, "a prompt's name, or a text with <image>", "PROMPT", many=True),
    Option(
        "max_new_tokens",
        None,
        read.tokens,
        f"stop after as many tokens; {VENDOR_MAX_NEW_TOKENS}, as the vendor does, if left out",
        "TOKENS",
    ),
    Option("device", "cpu", read.device, "the subject's: cpu, cuda or cuda:N", "DEVICE"),
    Option("dtype", "float32", read.one_of(*DTYPES), f"the subject's: {', '.join(DTYPES)}", "DTYPE"),
    Option("attention", "eager", read.one_of(*ATTENTIONS), f"the subject's: {', '.join(ATTENTIONS)}"),
    Option(
        "reference_device",
        None,
        read.reference_device,
        "as torch calls it, or a recording's, such as nvidia-h200; the subject's, if left out",
        "DEVICE",
    ),
    Option("reference_dtype", None, read.one_of(*DTYPES_OF_VENDOR), "the subject's, if left out", "DTYPE"),
    Option("reference_attention", None, read.one_of(*OF_VENDOR), "the subject's, if left out"),
    Option("tolerances", (), read.tolerance, "such as boxes=1, coords=0.02 or seam=1e-3", "NAME=VALUE", many=True),
    Option(
        "may_miss",
        (),
        read.one_of(*MISSING),
        f"what may be missing without failing the run: {', '.join(MISSING)}",
        many=True,
    ),
    Option(
        "level",
        None,
        read.level,
        "the level that the run promises, L0 to L3; tests above it are left out, and a subject of less fails",
    ),
    Option("no_skip", False, read.yes_or_no, "turn skips into failures, unless what is missing may be"),
    Option("out", None, read.folder, "folder for dsocr.json, index.html, and pages with both sides' boxes", "FOLDER"),
    Option(
        "golden",
        None,
        read.folder,
        "folder with vendor/ (recordings) and snapshots/; the shipped one, if left out",
        "FOLDER",
    ),
    Option("xfails", None, read.ledger, "file of tests that are known to fail: NODEID  # reason", "FILE"),
)

[OUT] = [option for option in OPTIONS if option.name == "out"]


def add_options(parser: pytest.Parser) -> None:
    """Register every option on the command line and in the ini file."""
    group = parser.getgroup(PREFIX, "DeepSeek-OCR: the implementation under test, held against the vendor's")
    for option in OPTIONS:
        what: dict[str, Any] = {"action": "store_true"} if option.is_switch else {"metavar": option.metavar}
        if option.many:
            what |= {"action": "append"}
        group.addoption(option.flag, dest=option.ini, default=None, help=option.help, **what)
        kind: Any = "linelist" if option.many else "string"
        parser.addini(option.ini, f"{option.flag}: {option.help}", type=kind, default=None)


def resolve(config: pytest.Config) -> Config:
    """Give the one config of a run.

    Raises:
        pytest.UsageError: on a bad value; it says where that was given, and lists the valid ones.
    """
    found = {option.name: _value(option, config, config.option) for option in OPTIONS}
    if not found["isolate"]:  # what is to have a process of its own is not imported into this one
        _value(replace(OPTIONS[0], read=read.importable_subject), config, config.option)
    for name in ("device", "dtype", "attention"):
        found[f"reference_{name}"] = found[f"reference_{name}"] or found[name]
    found["tolerances"] = dict(found["tolerances"])
    found["may_miss"] = frozenset(found["may_miss"])
    found["golden"] = found["golden"] or golden_folder()
    return Config(**found)


def resolve_out(config: pytest.Config, typed: Any) -> Path | None:
    """Give the folder of the run's result alone, which is wanted before anything else.

    Args:
        config: as far as it is made.
        typed: what the command line holds, by pytest's names.

    Raises:
        pytest.UsageError: where it is no folder.
    """
    folder: Path | None = _value(OUT, config, typed)
    return folder


def are_used(config: pytest.Config) -> bool:
    """Say whether a run uses any option: on the command line, in the ini file, or ``DSOCR_OUT``.

    The rest of the environment may be meant for other runs of the same shell.
    """
    return bool(os.environ.get(OUT.env, "").strip()) or any(
        config.getoption(option.ini) is not None or config.getini(option.ini) is not None for option in OPTIONS
    )


def _value(option: Option, config: pytest.Config, typed: Any) -> Any:
    for origin, given in _given(option, config, typed):
        try:
            values = tuple(option.read(text) for text in _texts(given))
        except DsocrError as error:
            raise pytest.UsageError(f"{origin}: {error}") from error
        if not option.many:
            return values[0]
        if values:
            return values
        raise pytest.UsageError(f"{origin}: names nothing; give {option.help}, or leave it out")
    return option.default


def _given(option: Option, config: pytest.Config, typed: Any) -> Iterator[tuple[str, Any]]:
    """Yield what was given of an option and where, what counts most first."""
    if (on_command_line := getattr(typed, option.ini, None)) is not None:
        yield option.flag, on_command_line
    if (in_environment := os.environ.get(option.env, "")).strip():  # CI sets what is not filled in to nothing
        yield option.env, in_environment.splitlines() if option.many else in_environment
    if (in_ini_file := config.getini(option.ini)) is not None:
        beside = [_beside(config, option, text) for text in _texts(in_ini_file)]
        yield f"{option.ini} in {config.inipath}", beside if option.many else beside[0]


def _beside(config: pytest.Config, option: Option, text: str) -> str:
    """Give a path in the ini file as relative to that file, as all of pytest's are; a name that is none as it is."""
    home = (config.inipath or Path()).parent
    if home == Path.cwd():  # as it is: ./session is a folder, and session is none
        return text
    beside = home / text
    is_path = option.read in (read.folder, read.present_folder, read.ledger)
    may_be = option.read in (read.page, read.reference, read.checkpoint) and text not in WORDS.get(option.name, ())
    return str(beside) if text and (is_path or (may_be and beside.exists())) else text


def _texts(given: Any) -> Iterable[str]:
    if isinstance(given, bool):
        return (str(given),)
    return (given,) if isinstance(given, str) else tuple(text for text in given if text.strip())
