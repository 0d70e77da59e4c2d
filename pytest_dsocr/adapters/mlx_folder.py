"""A checkpoint as mlx-vlm loads it: its own names in ``config.json``, and SAM of other sizes than it has built in."""

from __future__ import annotations

import importlib
import json
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from pytest_dsocr.engine.architecture import Architecture, ClipConfig, SamConfig
from pytest_dsocr.engine.portable import write_portable

MODEL_TYPE = "deepseekocr"


def write_mlx(checkpoint: str | Path, folder: Path) -> None:
    """Write ``checkpoint`` to a new ``folder``, in mlx-vlm's names; raises as :func:`write_portable`.

    What the vendor's config leaves out stays left out, so that mlx-vlm's own defaults count.
    """
    write_portable(checkpoint, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    clip = _clip(Architecture.from_folder(folder).clip)
    config |= {"model_type": MODEL_TYPE, "vision_config": config["vision_config"] | clip}
    path.write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    processor = folder / "processor_config.json"
    named = json.loads(processor.read_text(encoding="utf-8")) | {"processor_class": "DeepseekOCRProcessor"}
    processor.write_text(json.dumps(named, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _clip(clip: ClipConfig) -> dict[str, int]:
    return {
        "layers": clip.layers,
        "width": clip.width,
        "hidden_size": clip.width,
        "intermediate_size": clip.width * clip.mlp_ratio,
        "num_attention_heads": clip.heads,
        "patch_size": clip.patch_size,
    }


def resize_sam(sam: SamConfig) -> None:
    """Let mlx-vlm build SAM in these sizes; it knows those of the published model alone."""
    module: Any = importlib.import_module("mlx_vlm.models.deepseekocr.deepseekocr")
    sizes = {
        "image_size": sam.image_size,
        "width": sam.width,
        "layers": sam.layers,
        "heads": sam.heads,
        "window_size": sam.window_size,
        "global_attn_indexes": sam.global_attn_indexes,
    }
    config: Any = importlib.import_module("mlx_vlm.models.deepseekocr.config").SAMViTConfig
    encoder: Any = importlib.import_module("mlx_vlm.models.deepseekocr.sam").SAMEncoder
    module.SAMViTConfig = partial(config, **sizes)
    module.SAMEncoder = partial(_encoder, encoder, sam)


def _encoder(kind: Any, sam: SamConfig, **sizes: Any) -> Any:
    nn = importlib.import_module("mlx.nn")
    made = kind(**sizes, out_chans=sam.neck_channels)
    channels = (sam.neck_channels, *sam.downsample_channels)
    strided = partial(nn.Conv2d, kernel_size=3, stride=2, padding=1, bias=False)
    made.net_2, made.net_3 = (strided(*pair) for pair in pairwise(channels))
    return made
