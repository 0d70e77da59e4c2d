"""The checkpoint that llama.cpp's DeepSeek-OCR-2 can load: ``python -m ci.implementations.llama2 FOLDER``.

llama.cpp has SAM's 12 blocks, and which of them see the whole view, as literals. The blocks that ``mini`` lacks are
added with weights that change nothing.
"""

import json
import sys
from pathlib import Path

from pytest_dsocr.engine.portable import write_portable

BLOCKS, WHOLE = 12, (2, 5, 8, 11)
PREFIX = "model.sam_model.blocks."


def make(folder: Path) -> None:
    """Write ``deepseek_ocr2:mini`` with the blocks of the published SAM; those added give zeros to the residual."""
    from safetensors.torch import load_file, save_file

    write_portable("deepseek_ocr2:mini", folder)
    config = json.loads((folder / "config.json").read_text())
    sam = config["vision_config"]["width"]["sam_vit_b"]
    own, sam["layers"], sam["global_attn_indexes"] = sam["layers"], BLOCKS, WHOLE
    (folder / "config.json").write_text(json.dumps(config))
    [path] = folder.glob("*.safetensors")
    weights = load_file(path)
    for block in range(own, BLOCKS):
        like = f"{PREFIX}{WHOLE[0] if block in WHOLE else own - 1}."
        for name in [name for name in weights if name.startswith(like)]:
            is_last = ".attn.proj." in name or ".mlp.lin2." in name
            weights[name.replace(like, f"{PREFIX}{block}.")] = weights[name] * (0 if is_last else 1)
    save_file(weights, path, {"format": "pt"})


if __name__ == "__main__":
    make(Path(sys.argv[1]))
