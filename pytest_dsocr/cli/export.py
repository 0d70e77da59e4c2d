"""``dsocr export``: a checkpoint in the form that another implementation loads."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from pytest_dsocr.adapters.export import Converter, export

NEXT = {
    "hf": "load it as a checkpoint of transformers, or name it to this project: --dsocr-checkpoint={folder}",
    "mlx": "pytest --pyargs pytest_dsocr.suites --dsocr-subject=pytest_dsocr.adapters.mlx_vlm:MlxVlm writes its own; a "
    "program of your own loads this with mlx_vlm.load, after pytest_dsocr.adapters.mlx_vlm.resize_sam",
    "gguf": "llama-mtmd-cli -m {folder}/model.gguf --mmproj {folder}/mmproj.gguf",
}


def run(options: argparse.Namespace) -> Iterator[str]:
    """Write it, and say what to do with it.

    Raises:
        DsocrError: where it cannot be written.
    """
    converter = Converter(options.llama_cpp, options.python or Path(sys.executable))
    for path in export(options.checkpoint, options.form, options.folder, converter):
        yield f"written     {path}"
    yield f"next        {NEXT[options.form].format(folder=options.folder)}"
