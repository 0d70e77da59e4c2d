"""A view of a page as pixels."""

from io import BytesIO
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps


def rule(data: dict[str, Any]) -> Any:
    """Return rows of the view: the page resized by Pillow, levels to [-1, 1], rounded to bfloat16."""
    side, columns, rows, crop, squashed = data["view"].tolist()
    page = Image.open(BytesIO(data["input"].tobytes())).convert("RGB")
    if crop >= 0:
        left, top = crop % columns * side, crop // columns * side
        view = page.resize((columns * side, rows * side)).crop((left, top, left + side, top + side))
    elif squashed:
        view = page.resize((side, side))
    else:
        view = ImageOps.pad(page, (side, side), color=(127, 127, 127))
    levels = torch.from_numpy(np.array(view)).permute(2, 0, 1).float()
    return ((levels / 255 - 0.5) / 0.5).bfloat16().float().numpy().reshape(-1, side)[data["rows"]]
