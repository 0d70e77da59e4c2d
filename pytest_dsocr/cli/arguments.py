"""Arguments of several commands: the model, the prompt and preset, the vendor's code."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from pytest_dsocr.engine.places import family_named
from pytest_dsocr.pages.page_list import LIST_SUFFIXES, SUBSETS
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.config import Setup

PAGES = (
    f"images, folders of images, list files ({', '.join(LIST_SUFFIXES)}), PDFs, "
    f"or shipped pages: invoice_016, {', '.join(SUBSETS)}"
)


def add(command: ArgumentParser, flag: str, what: str, default: Any = None, **how: Any) -> None:
    """Add an option. If it has a default, its help shows it as a user would type it."""
    shown = " ".join(default) if isinstance(default, list) else default
    shown = f"{shown:g}" if isinstance(shown, float) else shown
    command.add_argument(flag, default=default, help=what if default is None else f"{what} (default: {shown})", **how)


def add_model(command: ArgumentParser) -> None:
    """Add the checkpoint, the device, the dtype and the attention."""
    what = "mini (embedded), a checkpoint's folder, a hub name in the local cache, or synthetic:NAME (random)"
    add(command, "--checkpoint", what, "mini")
    add(command, "--device", "cpu, cuda or cuda:N", "cpu")
    add(command, "--dtype", "float32, bfloat16 or float16", "float32")
    add(command, "--attention", "attention: eager, sdpa or flash_attention_2", "eager")


def setup_of(options: Namespace) -> Setup:
    """Return the settings that :func:`add_model` has added."""
    return Setup(options.checkpoint, options.device, options.dtype, options.attention)


def add_reading(command: ArgumentParser) -> None:
    """Add the prompt and the preset."""
    add(command, "--prompt", "a prompt's name, or a text with <image> in it", "markdown")
    add(command, "--preset", "tiny, small, base, large or gundam", "gundam")


def case_of(options: Namespace, page: Path) -> Case:
    """Return the case of a page with the prompt and the preset that :func:`add_reading` has added."""
    family = family_named(options.checkpoint)
    return make_case(page, options.prompt, options.preset, options.max_new_tokens, family=family)


def add_vendor(command: ArgumentParser) -> None:
    """Add the folder of the vendor's code."""
    command.add_argument("vendor", type=Path, help="folder with the vendor's Python files: a hub snapshot, a clone")


def add_environment(command: ArgumentParser) -> None:
    """Add the environment that the vendor's code runs in."""
    what = "the vendor's environment (default: one in the user's cache)"
    add(command, "--env", what, type=Path, metavar="FOLDER")
