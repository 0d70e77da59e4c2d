"""A toy: DeepSeek-OCR with one more stage behind the projector, 320 px crops, and no newlines."""

from dataclasses import replace

from pytest_dsocr.contract.presets import Layout, Preset, Tiling
from pytest_dsocr.models.deepseek_ocr import FAMILY as LIKE
from pytest_dsocr.models.spec import Stage

TILING = Tiling(crop_px=320, least=2, most=4, squashed_up_to_px=320)
ADAPTER = Stage("adapter", "view", "model.adapter", takes=("projector",))
PLACE = LIKE.stages.index(LIKE.stage["projector"]) + 1

FAMILY = replace(
    LIKE,
    name="toy_ocr",
    title="Toy-OCR",
    stages=(*LIKE.stages[:PLACE], ADAPTER, *LIKE.stages[PLACE:]),
    presets={"patchwork": Preset("patchwork", 256, 320, True, TILING, Layout(newlines=False, mosaic=True))},
    default_preset="patchwork",
    vendor=replace(LIKE.vendor, architecture="ToyOCRForCausalLM"),
    model="pytest_dsocr.models.toy_ocr.model:ToyOCR",
    fast_model="",
    cost="pytest_dsocr.models.toy_ocr.cost",
    embedded={},
)
