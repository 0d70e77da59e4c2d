"""Conversion of a checkpoint to GGUF, run by a Python that has the packages of llama.cpp's converter.

``python to_gguf.py CONVERTER MODEL FOLDER``. The converter knows a tokenizer by a hash and refuses others; this script
names the nearest of llama.cpp's pre-tokenizers. It does not import this project, which that Python may lack.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

PRE_TOKENIZER = "llama-bpe"
"""Pre-tokenizer that keeps a word of the vocabulary whole, as the tokenizer of ``mini`` does."""
BLOCKS = 32
"""Blocks of each tower that the converter can name at least. It takes a last tower's number, and SAM may have more."""


def convert(converter: Path, model: Path, folder: Path) -> None:
    """Write ``model.gguf`` and ``mmproj.gguf`` to ``folder``, both in float32."""
    sys.path.insert(0, str(converter.parent))
    module = importlib.import_module(converter.stem)
    know_tokenizer(module)
    name_blocks(importlib.import_module("gguf"))
    for arguments in (["--outfile", f"{folder}/model.gguf"], ["--outfile", f"{folder}/mmproj.gguf", "--mmproj"]):
        sys.argv = [str(converter), str(model), "--outtype", "f32", *arguments]
        module.main()


def know_tokenizer(module: Any) -> None:
    """Make the converter treat a tokenizer that it does not know as the nearest that it does."""
    base = (
        importlib.import_module("conversion.base") if (Path(module.__file__).parent / "conversion").is_dir() else module
    )
    known = base.TextModel.get_vocab_base_pre

    def nearest(self: Any, tokenizer: Any) -> str:
        try:
            return str(known(self, tokenizer))
        except NotImplementedError:
            return PRE_TOKENIZER

    base.TextModel.get_vocab_base_pre = nearest


def name_blocks(gguf: Any) -> None:
    """Make the converter know the names of :data:`BLOCKS` blocks, also of a model that says that it has fewer."""
    known = gguf.get_tensor_name_map
    gguf.get_tensor_name_map = lambda kind, blocks: known(kind, max(blocks, BLOCKS))


if __name__ == "__main__":
    convert(*map(Path, sys.argv[1:]))
