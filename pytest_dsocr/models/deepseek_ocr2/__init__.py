"""DeepSeek-OCR-2: a Qwen2 tower instead of CLIP, at most six crops of 768 px, no newlines and no mosaic."""

from dataclasses import replace
from pathlib import Path

from pytest_dsocr.contract.presets import Layout, Preset, Tiling
from pytest_dsocr.models.deepseek_ocr import FAMILY as LIKE
from pytest_dsocr.models.deepseek_ocr2.sizes import QUERIES, DeepEncoder2
from pytest_dsocr.models.deepseek_ocr2.synthetic import SIZES
from pytest_dsocr.models.spec import PageTokens, Stage

TILING = Tiling(crop_px=768, least=2, most=6, squashed_up_to_px=768, view_tokens=(*QUERIES,), lossy_px=640)
LAYOUT = Layout(newlines=False, mosaic=False)
TOWER = "model.qwen2_model"
TOWER_SYMBOLS = "build_qwen2_decoder_as_encoder Qwen2Decoder2Encoder CustomQwen2Decoder"
OF_LIKE = LIKE.vendor

CONTRACT = {
    stage: tuple(name.replace("DeepseekOCR", "DeepseekOCR2") for name in names)
    for stage, names in {**OF_LIKE.contract, "qwen2": tuple(TOWER_SYMBOLS.split())}.items()
    if stage != "clip"
}

FAMILY = replace(
    LIKE,
    name="deepseek_ocr2",
    title="DeepSeek-OCR-2",
    stages=(
        *LIKE.stages[: LIKE.stages.index(LIKE.stage["clip"])],
        Stage("qwen2", "view", TOWER, f"{TOWER}.model.model.layers", takes=("sam",), attention="sdpa", title="Qwen2"),
        replace(LIKE.stage["projector"], takes=("qwen2",)),
        *LIKE.stages[LIKE.stages.index(LIKE.stage["vision_fusion"]) :],
    ),
    presets={
        name: Preset(name, base_px, image_px, crop, TILING, LAYOUT)
        for name, base_px, image_px, crop in (
            ("gundam", 1024, 768, True),
            ("base", 1024, 1024, False),
            ("small", 768, 768, False),
            ("lossy640", 1024, 640, True),
        )
    },
    prompts={name: LIKE.prompts[name] for name in ("markdown", "free")},
    vendor=replace(
        OF_LIKE,
        architecture="DeepseekOCR2ForCausalLM",
        files=("modeling_deepseekocr2.py", OF_LIKE.files[1], "deepencoderv2.py", *OF_LIKE.files[3:]),
        contract=CONTRACT,
        model="pytest_dsocr.models.deepseek_ocr2.vendor:Deepseek2VendorModel",
        builders="pytest_dsocr.models.deepseek_ocr2.vendor:builders",
        built="SAM, Qwen2 tower, projector and separator",
        page_tokens=PageTokens(of_page={1024: 256, 1280: 400}, of_squashed={640: 100, 512: 64, 768: 144}, of_crop=144),
        published={**OF_LIKE.published, "vision": {**OF_LIKE.published["vision"], "model_name": "deepencoderv2"}},
    ),
    encoder=DeepEncoder2,
    model="pytest_dsocr.models.deepseek_ocr2.model:DeepseekOCR2",
    fast_model="pytest_dsocr.models.deepseek_ocr2.fast:FastDeepseekOCR2",
    cost="pytest_dsocr.models.deepseek_ocr2.cost",
    mistakes="pytest_dsocr.models.deepseek_ocr2.mistakes:encoder_mistakes",
    embedded={"mini": Path(__file__).parent / "mini"},
    synthetic=SIZES,
    based_on=LIKE,
    ports=Path(__file__).with_name("ports.toml"),
    is_unmarked=False,
)
