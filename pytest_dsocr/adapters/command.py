"""``cli:``: a command that reads one page, or, with ``--keep``, one that stays and reads page after page.

``cli:[OPTIONS] COMMAND`` or ``cli:FILE.toml``; see ``docs/adapters.md``. No shell is involved.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from msgspec import field

from pytest_dsocr.adapters import fields
from pytest_dsocr.adapters.process import RunningCommand
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.records.config import START_LIMIT_S, Level, SubjectFaultError
from pytest_dsocr.subjects.loading import CLI
from pytest_dsocr.subjects.protocol import Offers, Setup

T = TypeVar("T")
LEVEL = Level.TEXT
OWN_PROCESS = True
FLAGS = (
    "--keep, --after=MARK, --before=MARK, --time-limit=SECONDS, --start-limit=SECONDS, --env=NAME=VALUE, "
    "--presets=NAMES, --prompts=NAMES"
)


class CommandOptions(fields.Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command, and how it is run."""

    command: str | list[str] = ""
    keep: bool = False
    start_limit: fields.PositiveSeconds = START_LIMIT_S
    """Additional time for the first page of a command that stays, since that page waits for its loading."""
    after: str = ""
    """Mark after which the page's text starts; if empty, the text starts with the output."""
    before: str = ""
    """Mark before which the page's text ends; if empty, the text ends with the output."""
    env: Mapping[str, str | float] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """The command, split."""
        return shlex.split(self.command) if isinstance(self.command, str) else self.command

    @property
    def variables(self) -> dict[str, str]:
        """Variables added to the environment."""
        return {name: str(value) for name, value in self.env.items()}


def offers(spec: str) -> Offers:
    """Return what a command offers; raise ``DsocrError`` if there is no command, or an option is wrong."""
    return Offers.of(options_of(spec))


def subject(spec: str, setup: Setup) -> CommandSubject:
    """Return the subject that ``spec`` names."""
    options = options_of(spec)
    return KeptSubject(options, setup) if options.keep else CommandSubject(options, setup)


def options_of(
    spec: str, word: str = CLI, needed: Collection[str] = ("page",), more: tuple[str, ...] = ()
) -> CommandOptions:
    """Read a command and its options from a file, or from the part of a subject's name after ``word``."""
    rest = spec.removeprefix(word).strip()
    options = fields.read_options(CommandOptions, rest, lambda: _typed(rest))
    if not options.words:
        raise DsocrError(f"there is no command; give {word}COMMAND with {{page}} in it, or {word}FILE.toml")
    valid = fields.OF_SETUP if options.keep else fields.OF_PAGE + fields.OF_SETUP + more
    named = fields.check_fields(options.words, valid)
    if absent := [name for name in needed if not options.keep and name not in named]:
        what = "the image's file" if absent[0] == "page" else "the folder that it shall fill"
        raise DsocrError(f"{spec!r} hands no {absent[0]} over; write {{{absent[0]}}} where the command takes {what}")
    path = options.variables.get("PATH", os.environ.get("PATH"))
    if not fields.check_fields(options.words[:1], valid) and not shutil.which(options.words[0], path=path):
        raise DsocrError(f"there is no command {options.words[0]!r}; install it, or give its path")
    return options


class CommandSubject:
    """L0: a command for each page, whose output is the text."""

    def __init__(self, options: CommandOptions, setup: Setup) -> None:
        self._options, self._setup = options, asdict(setup)
        self.presets, self.prompts = options.presets, options.prompts

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Run the command on a page."""
        values = {**self._setup, **fields.of_page(page, prompt, preset, max_new_tokens)}
        return run(self._options, values, lambda one: _between(one, _decoded(one, one.output()), self._options))


class KeptSubject(CommandSubject):
    """L0: a command that stays: a line of JSON in for each page, a line of JSON out."""

    def __init__(self, options: CommandOptions, setup: Setup) -> None:
        super().__init__(options, setup)
        self._running: RunningCommand | None = None
        self._ids = count(1)

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Ask the command for a page; one that has ended, or did not answer, is started again."""
        if self._running and not self._running.is_running:
            self.close()
        limit_s = self._options.time_limit
        if self._running is None:
            self._running = _start(self._options, self._setup)
            limit_s += self._options.start_limit
        running, number = self._running, next(self._ids)
        try:
            running.limit(limit_s)
            asked = {"id": number, **fields.of_page(page, prompt, preset, max_new_tokens)}
            running.ask(json.dumps(asked).encode() + b"\n")
            answer = _answer(running, number)
        except BaseException:
            self._running = None
            running.kill()
            raise
        if "error" in answer:
            raise running.fault(f"answered with an error: {answer['error']}; fix that")
        return _between(running, answer["text"], self._options)

    def close(self) -> None:
        """End the command."""
        if self._running:
            self._running.close()
            self._running = None


def run(options: CommandOptions, values: fields.FieldValues, take: Callable[[RunningCommand], T]) -> T:
    """Start a command, take what it does within its time limit, and end it."""
    one = _start(options, values)
    try:
        one.limit(options.time_limit)
        return take(one)
    finally:
        one.kill()


def _start(options: CommandOptions, values: fields.FieldValues) -> RunningCommand:
    words = [fields.filled(word, values) for word in options.words]
    return RunningCommand(words, options.variables, is_asked=options.keep)


def _answer(running: RunningCommand, number: int) -> dict[str, Any]:
    """Return the answer; lines that do not start with a brace are messages."""
    while not (line := running.line()).startswith(b"{"):
        pass
    answer: Any = None
    with suppress(ValueError, RecursionError):
        answer = json.loads(_decoded(running, line))
    is_ours = isinstance(answer, dict) and answer.get("id") == number
    if is_ours and (isinstance(answer.get("text"), str) or "error" in answer):
        return dict(answer)
    wanted = json.dumps({"id": number, "text": "..."})
    raise running.fault(f"printed {_decoded(running, line).strip()[:60]!r}, which is no answer; print a line {wanted}")


def _decoded(running: RunningCommand, output: bytes) -> str:
    try:
        return output.decode()
    except UnicodeDecodeError as error:
        where = f"byte {error.start} of {len(output)} is {output[error.start]:#04x}"
        fault: SubjectFaultError = running.fault(f"printed what is not UTF-8 ({where}); let it print UTF-8")
        raise fault from fault.__cause__


def _between(running: RunningCommand, text: str, options: CommandOptions) -> str:
    """Return the text between the marks."""
    start = text.find(options.after) + len(options.after)
    end = text.find(options.before, start) if options.before else len(text)
    for mark, is_missing in ((options.after, options.after not in text), (options.before, end < 0)):
        if is_missing:
            raise running.fault(f"printed no {mark!r}, a mark of where the text is; give the marks that it prints")
    return text[start:end]


def _typed(rest: str) -> dict[str, Any]:
    """Read options and a command from the command line."""
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise DsocrError(f"{rest!r} cannot be split into words ({error}); close the quotes") from None
    own = next((k for k, word in enumerate(words) if not word.startswith("--")), len(words))
    return {"command": words[own:], **_flags(words[:own])}


def _flags(words: Iterable[str]) -> dict[str, Any]:
    given: dict[str, Any] = {"env": {}}
    for word in words:
        name, _, value = word.partition("=")
        match name:
            case "--keep" if not value:
                given["keep"] = True
            case "--after" | "--before" if value:
                given[name[2:]] = value
            case "--time-limit" | "--start-limit" if value.replace(".", "", 1).isdigit():
                given[name[2:].replace("-", "_")] = float(value)
            case "--presets" | "--prompts" if value:
                given[name[2:]] = value.split(",")
            case "--env" if "=" in value:
                given["env"] |= [value.split("=", 1)]
            case _:
                raise DsocrError(f"{word!r} is no option of {CLI}; in front of a command there may be {FLAGS}")
    return given
