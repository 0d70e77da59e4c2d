"""The arguments of ``dsocr cost``; its other modules are imported only where it runs."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from pytest_dsocr.pages.page_list import LIST_SUFFIXES, SUBSETS

DEVICE = "h200"
TOKENS = 1024


def add_arguments(command: ArgumentParser) -> None:
    """Add what is the command's alone."""
    lists = ", ".join(LIST_SUFFIXES)
    what = f"images, folders of images, list files ({lists}), PDFs, or shipped pages: {', '.join(SUBSETS)}"
    command.add_argument("pages", type=Path, nargs="+", metavar="PAGE", help=what)
    _add(command, "--tokens", "how many tokens are written", TOKENS, type=int, metavar="TOKENS")
    _add(command, "--device", "the device whose peaks are the roof, such as h200 or rtx-4090", DEVICE)
    checkpoint = "mini, a folder, synthetic:NAME or a hub name; its config alone is read (default: the vendor's sizes)"
    _add(command, "--checkpoint", checkpoint)
    _add(command, "--dtype", "float32, bfloat16 or float16", "bfloat16")
    _add(command, "--attention", "eager, sdpa or flash_attention_2", "eager")
    command.add_argument("--layers", action="store_true", help="tell each layer as well, of one page or in --json")
    _add(command, "--json", "write all of it to this file", type=Path, metavar="FILE")
    _add(command, "--html", "draw it as a page as well", type=Path, metavar="FILE")


def _add(command: ArgumentParser, flag: str, what: str, default: Any = None, **how: Any) -> None:
    command.add_argument(flag, default=default, help=what if default is None else f"{what} (default: {default})", **how)
