"""``dsocr compare``: the suites on a subject, with a status that no way to die or stop short can make 0.

pytest runs in a process of its own: where that ends without a result, whatever its status, this is no pass.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest_dsocr
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.plugin.options import OPTIONS, Option
from pytest_dsocr.report.file import RUN_ID, RunIdentity, mark_running, read_result

INSTALLED = "pytest_dsocr.suites"
OWN_TESTS = "meta"
DEFAULT_OUT, OUT_FLAG = "dsocr-out", "--dsocr-out"
FORWARDED = (signal.SIGINT, signal.SIGTERM)


def add_arguments(command: ArgumentParser) -> None:
    """Give the command every option of the plugin, by its name with ``dsocr-`` or without."""
    command.usage = "dsocr compare [PAGES ...] [options] [-- options of pytest's]"
    command.add_argument("named", nargs="*", metavar="PAGES", help="as --pages")
    command.add_argument("--tests", action="append", metavar="PATH", help="run these in the place of the suites")
    for option in OPTIONS:
        flags = (f"--{option.name.replace('_', '-')}", option.flag)
        if option.is_switch:
            command.add_argument(*flags, dest=option.name, action="store_true", help=option.help)
        else:
            command.add_argument(
                *flags, dest=option.name, action="append", metavar=option.metavar, default=SUPPRESS, help=option.help
            )


def split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Split what was typed at ``--``: behind it stand options of pytest's, which only ``compare`` hands on."""
    if "compare" not in arguments[:1] or "--" not in arguments:
        return arguments, ()
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def run(options: Namespace) -> Iterator[str]:
    """Run the suites, which tell all there is to tell; ``options.status`` is 0 only if the run's result passes.

    Raises:
        DsocrError: where the result's folder cannot be written, or there is no result.
    """
    out = Path(getattr(options, "out", [os.environ.get("DSOCR_OUT", "").strip() or DEFAULT_OUT])[-1])
    if [word for word in options.of_pytest if word.partition("=")[0] == OUT_FLAG]:
        raise DsocrError(f"{OUT_FLAG} stands behind --; give --out in front of it")
    tests = options.tests or suites()
    arguments = [*tests, "-p", "dsocr", f"{OUT_FLAG}={out}", *_typed(options), *options.of_pytest]
    command = [sys.executable, "-m", "pytest", *arguments]
    identity = RunIdentity.now(" ".join(["pytest", *arguments]))
    mark_running(out, identity)
    status = _status_of(command, identity.id)
    options.status = status or 1
    result = read_result(out, identity.id)
    options.status = status or int(not result["passes"])
    if status == 0 and not result["passes"]:
        yield f"dsocr: {result['verdict']}"


def suites() -> list[str]:
    """Give what pytest is to run: the suites of the installation, or those of the checkout, without its own tests."""
    if find_spec(INSTALLED) is not None:
        return ["--pyargs", INSTALLED]
    folder = Path(pytest_dsocr.__path__[0]).parent / "suites"
    return sorted(str(init.parent) for init in folder.glob("*/__init__.py") if init.parent.name != OWN_TESTS)


def _typed(options: Namespace) -> Iterator[str]:
    """Yield the options as pytest takes them."""
    for page in options.named:
        yield f"--dsocr-pages={page}"
    for option in OPTIONS:
        given = getattr(options, option.name, None)
        if option.is_switch:
            yield from [option.flag] if given else []
        elif option.name != "out":
            yield from (f"{option.flag}={value}" for value in _counting(option, given or []))


def _counting(option: Option, given: Sequence[str]) -> Sequence[str]:
    return given if option.many else given[-1:]


def _status_of(command: Sequence[str], run_id: str) -> int:
    """Run a command to its end; give its exit status, as a shell does where a signal ended it."""
    process = subprocess.Popen(command, env={**os.environ, RUN_ID: run_id})
    with _forwarding(process):
        status = process.wait()
    return status if status >= 0 else 128 - status


@contextmanager
def _forwarding(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Send what would end this process on to the one that it waits for, and go on waiting: it has things to tell.

    A terminal sends its interrupt to both by itself.
    """

    def forward(number: int, _: object) -> None:
        if number != signal.SIGINT:
            process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
