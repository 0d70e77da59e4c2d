"""The options of ``dsocr export``; imports nothing heavy."""

from __future__ import annotations

import argparse
from pathlib import Path

FORMS = ("hf", "mlx", "gguf")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add them."""
    command.add_argument("checkpoint", help="mini, a checkpoint's folder, or a hub name in the local cache")
    command.add_argument("folder", type=Path, metavar="FOLDER", help="a folder to write to, new or empty")
    what = "hf: with a text and a row for every id; mlx: in mlx-vlm's names; gguf: by llama.cpp's converter"
    command.add_argument("--to", choices=FORMS, required=True, dest="form", help=what)
    sources = "of gguf: llama.cpp's folder, with convert_hf_to_gguf.py"
    command.add_argument("--llama-cpp", type=Path, metavar="FOLDER", help=sources)
    python = "of gguf: a Python with what the converter imports (default: the one that runs this)"
    command.add_argument("--python", type=Path, metavar="PYTHON", help=python)
