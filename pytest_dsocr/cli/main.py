"""The command line: ``dsocr run``, ``dsocr compare``, ``dsocr vendor setup``, ``inspect`` and ``record``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_dsocr.cli import compare
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.printable import plain
from pytest_dsocr.foundation.system import check_system
from pytest_dsocr.reference.goldens import OWN, RECORDINGS

GOLDEN = Path("golden/vendor")


def parser() -> argparse.ArgumentParser:
    """Describe the commands and their options."""
    top = argparse.ArgumentParser(prog="dsocr", description="DeepSeek-OCR, stage by stage.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    _run(_command(commands, "run", "read one page, print its stages and boxes, draw the boxes"))
    compare.add_arguments(_command(commands, "compare", "run the suites: hold a subject against the vendor's code"))
    vendor = commands.add_parser("vendor", help="the vendor's code: its environment, its anchors, recordings of it")
    of_vendor = vendor.add_subparsers(required=True, metavar="COMMAND")
    _setup(_command(of_vendor, "setup", "make the environment that the vendor's code needs", "vendor_setup"))
    _inspect(_command(of_vendor, "inspect", "say what the vendor's files hold, and where", "vendor_inspect"))
    _record(_command(of_vendor, "record", "record what the vendor's code does with pages", "vendor_record"))
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if all went well, 2 on bad input, and of ``compare`` pytest's status if that is not 0."""
    ours, theirs = compare.split(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(ours)
    options.of_pytest = theirs
    module = importlib.import_module(f"pytest_dsocr.cli.{options.module}")  # torch only where it is needed
    options.status = 0
    try:
        check_system()
        for line in module.run(options):
            print(plain(line), flush=True)
    except BrokenPipeError:  # whoever read the lines has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except DsocrError as error:
        print(f"dsocr: {error}", file=sys.stderr)
        return int(options.status) or 2
    except KeyboardInterrupt:
        print("dsocr: interrupted", file=sys.stderr)
        return 130
    return int(options.status)


def _command(commands: Any, name: str, purpose: str, module: str | None = None) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=purpose, description=purpose, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    command.set_defaults(module=module or name)
    return command


def _run(command: argparse.ArgumentParser) -> None:
    command.add_argument("page", nargs="?", type=Path, help="an image; the first of the shipped pages if left out")
    _add_model(command)
    command.add_argument("--prompt", default="markdown", help="a named prompt, or a text with <image> in it")
    command.add_argument("--preset", default="gundam", help="tiny, small, base, large or gundam")
    command.add_argument("--max-new-tokens", type=int, default=1024, help="stop after as many tokens")
    command.add_argument("--out", type=Path, default=Path("dsocr-out"), help="folder for the artefacts")


def _setup(command: argparse.ArgumentParser) -> None:
    command.add_argument("vendor", type=Path, help="folder with the vendor's Python files: a hub snapshot, a clone")
    _add_environment(command)
    command.add_argument("--reuse-torch", action="store_true", help="use this environment's torch; install none")
    command.add_argument("--with", action="append", default=[], dest="extra", metavar="PACKAGE", help="install as well")


def _inspect(command: argparse.ArgumentParser) -> None:
    command.add_argument("vendor", type=Path, help="folder with the vendor's Python files")
    _add_environment(command)
    command.add_argument("--anchors", type=Path, help="what to tell drift from; ./golden's, or the shipped ones")
    command.add_argument("--write", action="store_true", help="write what is found to --anchors")


def _record(command: argparse.ArgumentParser) -> None:
    command.add_argument("vendor", type=Path, help="folder with the vendor's Python files")
    _add_pages(command, nargs="+")
    _add_environment(command)
    _add_model(command)
    _add_cases(command)
    command.add_argument("--time-limit", type=float, default=600, help="seconds without a sign of progress")
    command.add_argument("--golden", type=Path, default=OWN / RECORDINGS, help="folder of recordings")
    command.add_argument("--again", action="store_true", help="record cases anew that are recorded already")


def _add_environment(command: argparse.ArgumentParser) -> None:
    command.add_argument("--env", type=Path, help="the vendor's environment; one in the user's cache if left out")


def _add_model(command: argparse.ArgumentParser) -> None:
    what = "mini, which is shipped; a folder, a hub name in the local cache, or synthetic:NAME"
    command.add_argument("--checkpoint", default="mini", help=what)
    command.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    command.add_argument("--dtype", default="float32", help="float32, bfloat16 or float16")
    command.add_argument("--attn", default="eager", help="eager, sdpa or flash_attention_2")


def _add_pages(command: argparse.ArgumentParser, **how_many: Any) -> None:
    what = "images, folders of images, list files (.lst, .txt), or shipped pages: dev-3, dev-20, typeset, all"
    command.add_argument("pages", type=Path, help=what, **how_many)


def _add_cases(command: argparse.ArgumentParser, note: str = "") -> None:
    command.add_argument("--presets", nargs="+", default=["gundam"], help=f"tiny, small, base, large, gundam{note}")
    command.add_argument("--prompts", nargs="+", default=["markdown"], help=f"names, or texts with <image>{note}")
    command.add_argument("--max-new-tokens", type=int, default=None, help="stop after as many tokens; 8192 if left out")
