"""Command line: ``dsocr run``, ``compare``, ``doctor``, ``bench``, ``export``, ``vendor`` and others."""

import argparse
import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import pytest_dsocr
from pytest_dsocr.base.errors import DsocrError, is_of_machine
from pytest_dsocr.base.process import check_system
from pytest_dsocr.base.words import did_you_mean, plain
from pytest_dsocr.cli import compare
from pytest_dsocr.plugin import option_values
from pytest_dsocr.plugin.options import OPTIONS
from pytest_dsocr.report.file import BAD_INPUT, BY_INTERRUPT, EXIT_STATUS, Ending

COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("run:run", "read a page or a PDF; print stages and boxes, draw the boxes"),
    "compare": ("compare:run", "run the suites: compare an implementation (subject) with the vendor's"),
    "port": ("port:run", "name the next stage of a port that is missing or wrong, until all of it is right"),
    "receipt": ("results:receipt", "write a receipt of a run for a pull request, or verify one"),
    "diff": ("results:diff", "show what became wrong or slower between two results"),
    "demo": ("faults:demo", "plant a mistake in the engine, find it, and open the page of the result"),
    "doctor": ("doctor:run", "check whether this machine has everything that a run needs"),
    "bench": ("bench:run", "time two versions alternately: is the second slower?"),
    "load": ("load:run", "send a server concurrent requests: how many pages a second, and how long does each take?"),
    "history": ("results:history", "show the results of nights and the times of runs"),
    "scoreboard": ("results:scoreboard", "show the kept results of implementations, by version and stage"),
    "watch-vendor": ("vendor:watch", "show changes of the vendor's files, and their effects"),
    "faults": ("faults:run", "list the known mistakes, or show the effect of one on a page"),
    "new-adapter": ("adapters:new_adapter", "write a commented template for your own adapter"),
    "dump": ("adapters:dump", "write a page's inputs, stages and logits as files; or check such files: dump check"),
    "export": ("adapters:export", "write a checkpoint in the form that another implementation loads"),
    "vendor setup": ("vendor:setup", "make the environment in which the vendor's code runs"),
    "vendor inspect": ("vendor:inspect", "show what the vendor's files contain, and whether they can be imported"),
    "vendor record": ("vendor_pages:record", "run the vendor's code on pages and record the results"),
}
"""Function (``module:function``) and purpose of each command. The module's ``add_FUNCTION`` adds the arguments.

A function raises ``DsocrError`` if an argument is bad, or if it cannot read, run or write something.
"""
GROUPS = {"vendor": "set up, inspect or record the vendor's code"}
AREAS = {
    "compare": ("compare", "port", "receipt", "diff", "history", "scoreboard"),
    "look": ("demo", "run", "dump", "faults"),
    "measure": ("bench", "load"),
    "set up": ("doctor", "new-adapter", "export", "vendor", "watch-vendor"),
}
"""Commands by purpose, as ``--help`` groups them."""
CHECKED: Mapping[str, Mapping[str, Callable[[str], Any]]] = {
    "run": {"page": option_values.readable_page, "out": option_values.new_folder},
    "bench": {
        "page": option_values.readable_page,
        **dict.fromkeys(("out", "markdown", "bencher"), option_values.new_file),
        "trace": option_values.new_folder,
    },
    "dump": {},
    "faults": {"page": option_values.readable_page},
    "vendor record": {},
}
"""Readers of options that ``compare`` lacks or names differently, by command."""
READ_ALIKE = {"prompt": option_values.prompt, "preset": option_values.preset}
REFUSED = {"bench": 3}
"""Exit statuses of commands that use a special one if nothing was run."""


CHOICE = re.compile(r"invalid choice: '(?P<word>.*)' \(choose from (?P<valid>.*)\)")


class _Parser(argparse.ArgumentParser):
    def __init__(self, *words: Any, **how: Any) -> None:
        super().__init__(*words, **{**how, "allow_abbrev": False})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse an unknown argument, and name the most similar valid one."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            known = did_you_mean(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{known}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        if choice := CHOICE.search(message):
            message += did_you_mean(choice["word"], re.findall(r"[\w-]+", choice["valid"]))
        super().error(plain(message))


def parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Describe the commands and their options.

    Args:
        words: the command line, whose command alone is imported and described whole; every one, if left out.
    """
    top = _Parser(
        prog="dsocr",
        description="Compare DeepSeek-OCR implementations with the vendor's code, or read pages.",
        epilog="\n".join(_areas()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"dsocr {pytest_dsocr.__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND", help="one of those below; see its own --help")
    groups = {"": commands}
    for name, (where, purpose) in COMMANDS.items():
        group, _, own_name = name.rpartition(" ")
        if group not in groups:
            of_group = commands.add_parser(group, description=GROUPS[group])
            groups[group] = of_group.add_subparsers(required=True, metavar="COMMAND")
        shown: dict[str, Any] = {"help": purpose} if group else {}  # the others are in the epilog
        command = groups[group].add_parser(own_name, description=purpose, **shown)
        command.set_defaults(command=name)
        if words is None or [*words[: len(name.split())]] == name.split():
            module, function = _imported(where)
            getattr(module, f"add_{function}")(command)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return an exit status of :mod:`pytest_dsocr.report.file`."""
    words, of_pytest = compare.split(sys.argv[1:] if arguments is None else arguments)
    options = parser(words).parse_args(words)
    options.of_pytest = of_pytest
    options.status = 0
    try:
        check_system()
        if options.command in CHECKED:
            options.status = REFUSED.get(options.command, 0)
            _check(options)
            options.status = 0
        module, function = _imported(COMMANDS[options.command][0])
        for line in getattr(module, function)(options):
            print(plain(line), flush=True)
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        from pytest_dsocr.records.case import PageFaultError

        status = _status_of(error)
        return status if isinstance(error, PageFaultError) else int(options.status) or status
    except KeyboardInterrupt:
        print("dsocr: interrupted", file=sys.stderr)
        return BY_INTERRUPT
    return int(options.status)


def _areas() -> Iterator[str]:
    purposes = {**{name: purpose for name, (_, purpose) in COMMANDS.items()}, **GROUPS}
    for area, names in AREAS.items():
        yield f"{area}:"
        yield from (f"  {name:<14}{purposes[name]}" for name in names)


def _imported(where: str) -> tuple[Any, str]:
    module, _, function = where.partition(":")
    return importlib.import_module(f"pytest_dsocr.cli.{module}"), function


def _status_of(error: Exception) -> int:
    """Print the error that ended a command to stderr, and return its exit status."""
    is_of_us = not (isinstance(error, DsocrError) or is_of_machine(error))
    print(f"dsocr: {traceback.format_exc() if is_of_us else error}", file=sys.stderr)
    if is_of_machine(error):
        return EXIT_STATUS[Ending.INFRASTRUCTURE]
    return EXIT_STATUS[Ending.INTERNAL_ERROR] if is_of_us else BAD_INPUT


def _check(options: argparse.Namespace) -> None:
    """Raise ``DsocrError`` on bad values before anything heavy is imported."""
    readers = {**{option.name: option.read for option in OPTIONS}, **READ_ALIKE, **CHECKED[options.command]}
    for name, read in readers.items():
        given = getattr(options, name, None)
        for value in given if isinstance(given, list) else [] if given is None else [given]:
            read(str(value))
