"""A sketch of DeepSeek-OCR-2: learned queries instead of CLIP, crops of 768 px, no newlines and no mosaic."""

from dataclasses import replace

from pytest_dsocr.contract.presets import Layout, Preset, Tiling
from pytest_dsocr.models.deepseek_ocr import FAMILY as LIKE
from pytest_dsocr.models.spec import Stage

from .sizes import SIZES, QueryEncoder

TILING = Tiling(crop_px=768, least=2, most=6, squashed_up_to_px=768)
LAYOUT = Layout(newlines=False, mosaic=False)
TOWER = "model.qwen2_model"

FAMILY = replace(
    LIKE,
    name="sketch_ocr",
    title="Sketch-OCR",
    stages=(
        *LIKE.stages[: LIKE.stages.index(LIKE.stage["clip"])],
        Stage("queries", "view", TOWER, f"{TOWER}.layers", takes=("sam",), attention="sdpa", title="queries"),
        replace(LIKE.stage["projector"], takes=("queries",)),
        *LIKE.stages[LIKE.stages.index(LIKE.stage["vision_fusion"]) :],
    ),
    presets={
        "large": Preset("large", 1024, 768, True, TILING, LAYOUT),
        "one": Preset("one", 768, 768, False, TILING, LAYOUT),
    },
    default_preset="large",
    vendor=replace(LIKE.vendor, architecture="SketchOCRForCausalLM", files=("modeling_sketchocr.py",)),
    encoder=QueryEncoder,
    model="pytest_dsocr.models.sketch_ocr.model:SketchOCR",
    fast_model="",
    cost="pytest_dsocr.models.sketch_ocr.cost",
    mistakes="pytest_dsocr.models.sketch_ocr.mistakes:encoder_mistakes",
    embedded={},
    synthetic=SIZES,
    ports=None,
    is_unmarked=False,
)
