"""What was given of each option.

The command line counts before the environment, then the ini file, then the default.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.config import Config
from pytest_dsocr.plugin import option_values as read
from pytest_dsocr.plugin.option import PREFIX, Option
from pytest_dsocr.plugin.options import OPTIONS
from pytest_dsocr.reference.goldens import golden_folder

WORDS = {"checkpoint": ("mini",), "reference": ("recorded", "session")}
"""Words of options that also take paths. A folder of such a name is written ``./mini``."""
[OUT] = [option for option in OPTIONS if option.name == "out"]


def add_options(parser: pytest.Parser) -> None:
    """Register every option on the command line and in the ini file."""
    group = parser.getgroup(PREFIX, "DeepSeek-OCR: compare an implementation under test (subject) with the vendor's")
    for option in OPTIONS:
        what: dict[str, Any] = {"action": "store_true"} if option.is_switch else {"metavar": option.metavar}
        if option.many:
            what |= {"action": "append"}
        group.addoption(option.flag, dest=option.ini, default=None, help=option.full_help, **what)
        kind: Any = "linelist" if option.many else "string"
        parser.addini(option.ini, f"{option.flag}: {option.full_help}", type=kind, default=None)


def resolve(config: pytest.Config) -> Config:
    """Give the config of a run.

    Raises:
        pytest.UsageError: on a bad value. The message says where it was given, and lists the valid ones.
    """
    found = {option.name: _value(option, config, config.option) for option in OPTIONS}
    if not found["isolate"]:  # an isolated subject is not imported into this process
        _value(replace(OPTIONS[0], read=read.importable_subject), config, config.option)
    found["tolerances"] = dict(found["tolerances"])
    found["slower"] = dict(found["slower"])
    found["may_miss"] = frozenset(found["may_miss"])
    found["golden"] = found["golden"] or golden_folder()
    return Config(**found)


def resolve_out(config: pytest.Config, typed: Any) -> Path | None:
    """Give only the folder for the run's result, which is needed before the other options.

    Args:
        config: pytest's, as far as it is configured.
        typed: the parsed command line.

    Raises:
        pytest.UsageError: if it is not a folder.
    """
    folder: Path | None = _value(OUT, config, typed)
    return folder


def are_used(config: pytest.Config) -> bool:
    """Say whether a run uses any option: on the command line, in the ini file, or ``DSOCR_OUT``.

    Other variables of the environment may be meant for other runs in the same shell.
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
    return option.value_if_unset


def _given(option: Option, config: pytest.Config, typed: Any) -> Iterator[tuple[str, Any]]:
    """Yield where an option was given and its value; the place that counts first comes first."""
    if (on_command_line := getattr(typed, option.ini, None)) is not None:
        yield option.flag, on_command_line
    if (
        in_environment := os.environ.get(option.env, "")
    ).strip():  # CI systems set variables that are not filled in to nothing
        yield option.env, in_environment.splitlines() if option.many else in_environment
    if (in_ini_file := config.getini(option.ini)) is not None:
        beside = [_beside(config, option, text) for text in _texts(in_ini_file)]
        yield f"{option.ini} in {config.inipath}", beside if option.many else beside[0]


def _beside(config: pytest.Config, option: Option, text: str) -> str:
    """Give a path from the ini file relative to that file, as pytest does; give any other value unchanged."""
    home = (config.inipath or Path()).parent
    if home == Path.cwd():  # unchanged: ./session is a folder, session is not
        return text
    beside = home / text
    is_path = option.read in (read.folder, read.present_folder, read.ledger)
    may_be = option.read in (read.page, read.reference, read.checkpoint) and text not in WORDS.get(option.name, ())
    return str(beside) if text and (is_path or (may_be and beside.exists())) else text


def _texts(given: Any) -> Iterable[str]:
    if isinstance(given, bool):
        return (str(given),)
    return (given,) if isinstance(given, str) else tuple(text for text in given if text.strip())
