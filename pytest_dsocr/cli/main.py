"""The command line: ``dsocr run``, ``compare``, ``doctor``, ``bench``, ``export``, ``vendor`` and others."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest_dsocr
from pytest_dsocr.adapters.start import KINDS
from pytest_dsocr.cli import (
    bench_arguments,
    compare,
    cost_arguments,
    doctor_arguments,
    export_arguments,
    faults,
    nightly_arguments,
    results_arguments,
)
from pytest_dsocr.foundation.errors import DsocrError, is_of_machine
from pytest_dsocr.foundation.process import check_system
from pytest_dsocr.foundation.words import Command, plain
from pytest_dsocr.pages.page_list import LIST_SUFFIXES, SUBSETS
from pytest_dsocr.plugin import option_values
from pytest_dsocr.plugin.options import OPTIONS
from pytest_dsocr.reference.goldens import OWN, RECORDINGS
from pytest_dsocr.report.exit_status import BAD_INPUT, BY_INTERRUPT, EXIT_STATUS, Ending

CHECKED: Mapping[str, Mapping[str, Callable[[str], Any]]] = {
    "run": {
        "page": option_values.readable_page,
        "prompt": option_values.prompt,
        "preset": option_values.preset,
        "out": option_values.new_folder,
    },
    "bench": {
        "page": option_values.readable_page,
        "prompt": option_values.prompt,
        "preset": option_values.preset,
        "out": str,  # a file
    },
    "vendor_record": {},
}
"""By command: the readers of options that ``compare`` has not, or under another name."""
REFUSED = {"bench": 3}
"""Exit statuses of commands that have one of their own where nothing was run."""


def parser() -> argparse.ArgumentParser:
    """Describe the commands and their options."""
    top = argparse.ArgumentParser(
        prog="dsocr", description="Compare DeepSeek-OCR implementations with the vendor's code, or read pages."
    )
    top.add_argument("--version", action="version", version=f"dsocr {pytest_dsocr.__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    _run(_command(commands, "run", "read a page or a PDF; print stages and boxes, draw the boxes"))
    compare.add_arguments(
        _command(commands, "compare", "run the suites: compare an implementation (subject) with the vendor's")
    )
    results_arguments.add_bisect(_command(commands, "bisect", "look for the first bad commit between two"))
    results_arguments.add_diff(_command(commands, "diff", "show what became wrong or slower between two results"))
    results_arguments.add_merge(_command(commands, "merge", "make one result of those of shards"))
    doctor_arguments.add_arguments(_command(commands, "doctor", "check this machine: is there what a run needs?"))
    _bench(_command(commands, "bench", "measure two versions in turn: is the second slower?"))
    _cost(_command(commands, "cost", "calculate what pages cost: FLOPs, bytes, and the least time on a device"))
    purpose = "run every part of a night that a file describes, or merge the nights of several machines"
    nightly_arguments.add_arguments(_command(commands, "nightly", purpose))
    _history(_command(commands, "history", "show what was found night by night, and measured run by run"))
    _watch(
        _command(
            commands, "watch-vendor", "have the vendor's files changed, and what does that affect?", "watch_vendor"
        )
    )
    purpose = "list the known mistakes, or show what one does to a page"
    faults.add_arguments(_command(commands, "faults", purpose))
    purpose = "write a commented file to begin an adapter of your own with"
    _new_adapter(_command(commands, "new-adapter", purpose, "new_adapter"))
    purpose = "write a checkpoint in the form that another implementation loads"
    export_arguments.add_arguments(_command(commands, "export", purpose))
    vendor = commands.add_parser("vendor", help="set up, inspect, run or record the vendor's code")
    of_vendor = vendor.add_subparsers(required=True, metavar="COMMAND")
    _setup(_command(of_vendor, "setup", "make the environment in which the vendor's code runs", "vendor_setup"))
    _inspect(
        _command(of_vendor, "inspect", "show what the vendor's files contain, and what has changed", "vendor_inspect")
    )
    _record(_command(of_vendor, "record", "record what the vendor's code does with pages", "vendor_record"))
    _vendor_run(_command(of_vendor, "run", "keep what the vendor's code makes of pages, as files", "vendor_run"))
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; gives one of the statuses of :mod:`pytest_dsocr.report.exit_status`."""
    ours, theirs = compare.split(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(ours)
    options.of_pytest = theirs
    options.status = 0
    try:
        check_system()
        if options.module in CHECKED:
            options.status = REFUSED.get(options.module, 0)
            _check(options)
            options.status = 0
        module = importlib.import_module(f"pytest_dsocr.cli.{options.module}")  # some import torch, and some need not
        for line in module.run(options):
            print(line if isinstance(line, Command) else plain(line), flush=True)
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        status = _status_of(error)
        return int(options.status) or status
    except KeyboardInterrupt:
        print("dsocr: interrupted", file=sys.stderr)
        return BY_INTERRUPT
    return int(options.status)


def _status_of(error: Exception) -> int:
    """Say what ended a command on stderr, and give its exit status."""
    is_of_us = not (isinstance(error, DsocrError) or is_of_machine(error))
    print(f"dsocr: {traceback.format_exc() if is_of_us else error}", file=sys.stderr)
    if is_of_machine(error):
        return EXIT_STATUS[Ending.INFRASTRUCTURE]
    return EXIT_STATUS[Ending.INTERNAL_ERROR] if is_of_us else BAD_INPUT


def _check(options: argparse.Namespace) -> None:
    """Refuse values that cannot be, before anything heavy is imported; raise ``DsocrError``."""
    readers = {**{option.name: option.read for option in OPTIONS}, **CHECKED[options.module]}
    for name, read in readers.items():
        given = getattr(options, name, None)
        for value in given if isinstance(given, list) else [] if given is None else [given]:
            read(str(value))


def _command(commands: Any, name: str, purpose: str, module: str | None = None) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=purpose, description=purpose)
    command.set_defaults(module=module or name)
    return command


def _run(command: argparse.ArgumentParser) -> None:
    command.add_argument("page", nargs="?", type=Path, help="an image or a PDF (default: a shipped page)")
    command.add_argument("--page", type=int, metavar="NUMBER", dest="number", help="read only this page of the PDF")
    _add_model(command)
    _add_reading(command)
    _add(command, "--max-new-tokens", "stop after this many tokens", 1024, type=int, metavar="TOKENS")
    _add(
        command,
        "--out",
        "folder for the files written; of a PDF, one in it for each page",
        Path("dsocr-out"),
        type=Path,
    )


def _bench(command: argparse.ArgumentParser) -> None:
    bench_arguments.add_arguments(command)
    _add_model(command)
    _add_reading(command)


def _cost(command: argparse.ArgumentParser) -> None:
    cost_arguments.add_arguments(command)
    _add_reading(command)


def _history(command: argparse.ArgumentParser) -> None:
    what = "a folder of nights and of history.jsonl files, or one such file"
    command.add_argument("place", type=Path, metavar="FOLDER", help=what)
    add = "add the result in this folder, or this dsocr.json, as a night first; may be given several times"
    command.add_argument("--add", type=Path, action="append", metavar="RESULT", help=add)
    command.add_argument("--html", type=Path, metavar="FILE", help="draw it as a page as well")


def _new_adapter(command: argparse.ArgumentParser) -> None:
    command.add_argument("kind", choices=[*KINDS], help="a command, a server, or a class in Python")
    command.add_argument("file", type=Path, metavar="FILE", help="the file to write: .toml, of python .py")


def _setup(command: argparse.ArgumentParser) -> None:
    _add_vendor(command)
    _add_environment(command)
    command.add_argument("--reuse-torch", action="store_true", help="use the torch installed here, and install none")
    command.add_argument(
        "--with",
        action="append",
        default=[],
        dest="extra",
        metavar="PACKAGE",
        help="install this package as well; may be given several times",
    )


def _inspect(command: argparse.ArgumentParser) -> None:
    _add_vendor(command)
    _add_environment(command)
    _add_anchors(command)
    command.add_argument("--write", action="store_true", help="write what is found to --anchors")


def _watch(command: argparse.ArgumentParser) -> None:
    _add_vendor(command)
    _add_anchors(command)
    golden = "folder with vendor/ (recordings) (default: ./golden, or else the shipped one)"
    command.add_argument("--golden", type=Path, metavar="FOLDER", help=golden)
    command.add_argument("--markdown", type=Path, metavar="FILE", help="write it as the text of an issue as well")


def _record(command: argparse.ArgumentParser) -> None:
    _add_cases(command)
    _add(command, "--golden", "folder of recordings to write to", OWN / RECORDINGS, type=Path, metavar="FOLDER")
    command.add_argument("--again", action="store_true", help="record the cases anew that are recorded already")
    flops = "count FLOPs alone, and leave the recordings as they are"
    command.add_argument("--only-flops", action="store_true", help=flops)


def _vendor_run(command: argparse.ArgumentParser) -> None:
    _add_cases(command)
    command.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder with a folder for each case")
    command.add_argument("--again", action="store_true", help="read the pages anew that are there already")


def _add_cases(command: argparse.ArgumentParser) -> None:
    """Add the vendor's code, and which pages it reads how."""
    _add_vendor(command)
    lists = ", ".join(LIST_SUFFIXES)
    what = f"images, folders of images, list files ({lists}), PDFs, or shipped pages: {', '.join(SUBSETS)}"
    command.add_argument("pages", type=Path, nargs="+", help=what)
    _add_environment(command)
    _add_model(command)
    _add(command, "--presets", "tiny, small, base, large, gundam", ["gundam"], nargs="+", metavar="PRESET")
    _add(
        command, "--prompts", "prompts' names, or texts with <image> in them", ["markdown"], nargs="+", metavar="PROMPT"
    )
    ceiling = "stop after this many tokens (default: as many as the vendor's code)"
    command.add_argument("--max-new-tokens", type=int, metavar="TOKENS", help=ceiling)
    _add(command, "--time-limit", "longest time without a sign of progress", 600.0, type=float, metavar="SECONDS")


def _add_vendor(command: argparse.ArgumentParser) -> None:
    command.add_argument("vendor", type=Path, help="folder with the vendor's Python files: a hub snapshot, a clone")


def _add_anchors(command: argparse.ArgumentParser) -> None:
    anchors = "file to compare with (default: ./golden/vendor/anchors.json, or else the shipped one)"
    command.add_argument("--anchors", type=Path, metavar="FILE", help=anchors)


def _add_environment(command: argparse.ArgumentParser) -> None:
    where = "the vendor's environment (default: one in the user's cache)"
    command.add_argument("--env", type=Path, metavar="FOLDER", help=where)


def _add_model(command: argparse.ArgumentParser) -> None:
    what = "mini (embedded), a checkpoint's folder, a hub name in the local cache, or synthetic:NAME (random)"
    _add(command, "--checkpoint", what, "mini")
    _add(command, "--device", "cpu, cuda or cuda:N", "cpu")
    _add(command, "--dtype", "float32, bfloat16 or float16", "float32")
    _add(command, "--attention", "attention: eager, sdpa or flash_attention_2", "eager")


def _add_reading(command: argparse.ArgumentParser) -> None:
    _add(command, "--prompt", "a prompt's name, or a text with <image> in it", "markdown")
    _add(command, "--preset", "tiny, small, base, large or gundam", "gundam")


def _add(command: argparse.ArgumentParser, flag: str, what: str, default: Any, **how: Any) -> None:
    """Add an option whose help shows its default as a user types it."""
    typed = (
        " ".join(default) if isinstance(default, list) else f"{default:g}" if isinstance(default, float) else default
    )
    command.add_argument(flag, default=default, help=f"{what} (default: {typed})", **how)
