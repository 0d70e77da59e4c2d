"""DeepSeek-OCR: SAM's and CLIP's features joined, 640 px crops laid out as one page, rows that end with a newline."""

import json
from pathlib import Path

from pytest_dsocr.contract.markup import OutputForm
from pytest_dsocr.contract.policy import CachePolicy, DecodePolicy
from pytest_dsocr.contract.presets import Layout, Preset, Tiling
from pytest_dsocr.contract.prompt import SpecialTokens
from pytest_dsocr.models.deepseek_ocr.sizes import DeepEncoder
from pytest_dsocr.models.deepseek_ocr.synthetic import SIZES
from pytest_dsocr.models.spec import PIXELS, PREPROCESS, TOKENIZER, ModelSpec, PageTokens, Stage, Vendor

TILING = Tiling(crop_px=640, least=2, most=9, squashed_up_to_px=640)
LAYOUT = Layout(newlines=True, mosaic=True)

CONTRACT = {
    stage: tuple(names.split())
    for stage, names in {
        TOKENIZER: "format_messages get_conv_template Conversation text_encode",
        PREPROCESS: "load_image load_pil_images find_closest_aspect_ratio dynamic_preprocess normalize_transform "
        "BasicImageTransform",
        "sam": "build_sam_vit_b _build_sam ImageEncoderViT Block Attention MLPBlock LayerNorm2d PatchEmbed "
        "get_abs_pos_sam get_rel_pos add_decomposed_rel_pos window_partition window_unpartition",
        "clip": "build_clip_l vit_model_cfg VitModel CLIPVisionEmbeddings NoTPTransformer NoTPTransformerBlock "
        "NoTPAttention NoTPFeedForward get_abs_pos quick_gelu LayerNormfp32",
        "projector": "MlpProjector",
        "vision_fusion": "DeepseekOCRModel DeepseekOCRModel.forward",
        "prefill": "DeepseekV2Config DeepseekOCRForCausalLM DeepseekOCRForCausalLM.forward DeepseekV2Model "
        "DeepseekV2Model.forward DeepseekV2DecoderLayer ATTENTION_CLASSES DeepseekV2Attention "
        "DeepseekV2FlashAttention2 DeepseekV2MLP DeepseekV2MoE MoEGate DeepseekV2RMSNorm",
        "decode": "DeepseekOCRForCausalLM.infer DeepseekOCRForCausalLM.prepare_inputs_for_generation NoEOSTextStreamer",
        "postprocess": "re_match extract_coordinates_and_label draw_bounding_boxes process_image_with_refs",
    }.items()
}

FAMILY = ModelSpec(
    name="deepseek_ocr",
    title="DeepSeek-OCR",
    stages=(
        Stage(PREPROCESS, "host"),
        Stage(TOKENIZER, "host"),
        Stage(
            "sam", "view", "model.sam_model", "model.sam_model.blocks", takes=(PIXELS,), attention="sdpa", title="SAM"
        ),
        Stage(
            "clip",
            "view",
            "model.vision_model",
            "model.vision_model.transformer.layers",
            takes=("sam",),
            attention="sdpa",
            title="CLIP",
        ),
        Stage("projector", "view", "model.projector", takes=("clip", "sam"), title="projector"),
        Stage("vision_fusion", "fusion"),
        Stage("prefill", "prompt", blocks="model.layers"),
        Stage("decode", "step"),
        Stage("postprocess", "host"),
    ),
    presets={
        name: Preset(name, base_px, image_px, crop, TILING, LAYOUT)
        for name, base_px, image_px, crop in (
            ("tiny", 512, 512, False),
            ("small", 640, 640, False),
            ("base", 1024, 1024, False),
            ("large", 1280, 1280, False),
            ("gundam", 1024, 640, True),
        )
    },
    default_preset="gundam",
    prompts={
        "markdown": "<image>\n<|grounding|>Convert the document to markdown.",
        "ocr": "<image>\n<|grounding|>OCR this image.",
        "free": "<image>\nFree OCR.",
        "figure": "<image>\nParse the figure.",
        "describe": "<image>\nDescribe this image in detail.",
    },
    newline="image_newline",
    separator="view_seperator",
    special=SpecialTokens(bos=0, eos=1, pad=2, image=128815),
    vocab_size=129280,
    prompt_ids={
        "\n<|grounding|>Convert the document to markdown.": (201, 128820, 21842, 270, 4940, 304, 2121, 7919, 16),
        "\n<|grounding|>OCR this image.": (201, 128820, 119316, 566, 4609, 16),
        "\nFree OCR.": (201, 21431, 126041, 16),
        "\nParse the figure.": (201, 68779, 270, 5991, 16),
        "\nDescribe this image in detail.": (201, 72188, 566, 4609, 295, 6271, 16),
    },
    decoding=DecodePolicy(eos_id=1, no_repeat_ngram_size=20, max_new_tokens=8192),
    cache=CachePolicy(),
    vendor=Vendor(
        architecture="DeepseekOCRForCausalLM",
        files=(
            "modeling_deepseekocr.py",
            "modeling_deepseekv2.py",
            "deepencoder.py",
            "conversation.py",
            "configuration_deepseek_v2.py",
        ),
        contract=CONTRACT,
        model="pytest_dsocr.models.deepseek_ocr.vendor:DeepseekVendorModel",
        builders="pytest_dsocr.models.deepseek_ocr.vendor:builders",
        built="SAM, CLIP, projector, newline and separator",
        page_tokens=PageTokens(of_page={1024: 256, 1280: 400}, of_squashed={640: 100, 512: 64}, of_crop=100),
        published=json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8")),
    ),
    encoder=DeepEncoder,
    model="pytest_dsocr.models.deepseek_ocr.model:DeepseekOCR",
    fast_model="pytest_dsocr.models.deepseek_ocr.fast:FastDeepseekOCR",
    cost="pytest_dsocr.models.deepseek_ocr.cost",
    mistakes="pytest_dsocr.models.deepseek_ocr.mistakes:encoder_mistakes",
    form=OutputForm(label_in_det=False, flat_box=False, strips_label=False, result_file="result.mmd"),
    embedded={"mini": Path(__file__).parent / "mini"},
    synthetic=SIZES,
    ports=Path(__file__).with_name("ports.toml"),
    is_unmarked=True,
)
