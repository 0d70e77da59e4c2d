"""A folder with the five files and every anchor, in our own words, for tests to change."""

import re
from pathlib import Path

from pytest_dsocr.reference.drift import read_json
from tests.recordings import FILES, FOLDER

MAIN, DECODER, ENCODER, CONVERSATION, CONFIG = FILES

MAIN_TEXT = """
import json

from .configuration_deepseek_v2 import DeepseekV2Config
from .conversation import get_conv_template
from .deepencoder import MlpProjector, build_clip_l, build_sam_vit_b
from .modeling_deepseekv2 import ATTENTION_CLASSES, DeepseekV2Model as Decoder


class DeepseekOCRModel(Decoder):
    width = 8

    def forward(self, pages, ids):
        if pages is None:
            return self.text_model(ids)
        if len(pages.views) > 3:
            ids = self.sam_model(pages)
        return super().forward(ids, None)


class DeepseekOCRForCausalLM:
    def forward(self, pages, ids):
        return self.model(pages, ids)

    def infer(self):
        return self.generate(ids=[1], ceiling=8)

    def prepare_inputs_for_generation(self, ids):
        return {"ids": ids, "images": None}
"""

DECODER_TEXT = """
class DeepseekV2Model:
    def forward(self, ids, past_key_values):
        return past_key_values.update(ids)


class DeepseekV2Attention:
    pass


class DeepseekV2FlashAttention2:
    pass


ATTENTION_CLASSES = {"eager": DeepseekV2Attention, "flash_attention_2": DeepseekV2FlashAttention2}
"""


def write_small_folder(folder: Path) -> Path:
    """Write the files into a new ``folder``, with a function for each anchor that the texts lack."""
    folder.mkdir()
    texts = {**dict.fromkeys(FILES, ""), MAIN: MAIN_TEXT, DECODER: DECODER_TEXT}
    for symbol, anchor in read_json(FOLDER / "anchors.json").symbols.items():
        if not re.search(rf"^(class )?{symbol.partition('.')[0]}\b", texts[anchor.file], re.MULTILINE):
            texts[anchor.file] += f"\n\n{body_of(symbol)}"
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def change(folder: Path, file: str, old: str, new: str) -> None:
    """Replace a text that stands once in a file."""
    path = folder / file
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {file}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def body_of(name: str) -> str:
    """Return the text of a function that was written by its name alone."""
    return f'def {name}():\n    return "{name} as it was"\n'
