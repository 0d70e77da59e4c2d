"""xberg's DeepSeek-OCR, which is Rust in a wheel: a command that stays, and the checkpoint that it can load.

``python -m ci.implementations.xberg make FOLDER TOKENS`` writes ``synthetic:published`` with a row for the image's id,
which xberg has as a literal, and the output's ceiling, which its config alone says. ``... serve FOLDER`` reads pages.
"""

import asyncio
import importlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_dsocr.engine.portable import write_portable

IMAGE_ID = 128815
GENERATION = 2
"""Value of xberg's option ``version`` for DeepSeek-OCR; 1 selects DeepSeek-OCR-2's sizes."""


def make(folder: Path, max_new_tokens: int) -> None:
    """Write the checkpoint; tokens that are not there are as the first one, which ends a text."""
    import torch
    from safetensors.torch import load_file, save_file

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        write_portable("synthetic:published", Path(scratch))
        weights = {
            name: tensor for file in Path(scratch).glob("*.safetensors") for name, tensor in load_file(file).items()
        }
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            table = weights[name]
            weights[name] = torch.cat([table, table[:1].expand(IMAGE_ID + 1 - len(table), -1)])
        save_file(weights, folder / "model.safetensors")
        config = json.loads(Path(scratch, "config.json").read_text())
        config["language_config"]["vocab_size"] = config["vocab_size"] = IMAGE_ID + 1
        (folder / "config.json").write_text(json.dumps({**config, "max_new_tokens": max_new_tokens}))
        (folder / "tokenizer.json").write_bytes(Path(scratch, "tokenizer.json").read_bytes())


def serve(folder: Path) -> Iterator[dict[str, Any]]:
    """Read the pages that stdin names; it has one prompt, ``Free OCR.``, and one preset, gundam."""
    xberg: Any = importlib.import_module("xberg")
    options: Any = importlib.import_module("xberg.options")
    sizes = {"model_path": str(folder), "version": GENERATION, "device": "cpu", "dtype": "f32"}
    ocr = options.OcrConfig(backend="candle-deepseek-ocr", backend_options=json.dumps(sizes))
    config = options.ExtractionConfig(ocr=ocr, force_ocr=True, extraction_timeout_secs=3600)
    for line in sys.stdin:
        asked = json.loads(line)
        page = options.ExtractInput(kind="uri", uri=asked["page"])
        try:
            found = asyncio.run(xberg.extract(page, config))
            yield {"id": asked["id"], "text": found.results[0].content}
        except RuntimeError as error:
            yield {"id": asked["id"], "error": str(error).partition("\n")[0]}


if __name__ == "__main__":
    what, where, *more = sys.argv[1:]
    if what == "make":
        make(Path(where), int(*more))
    else:
        for answer in serve(Path(where)):
            print(json.dumps(answer), flush=True)
