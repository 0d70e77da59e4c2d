"""A folder with the five files and every anchor, in our own words, for tests to change."""

from pathlib import Path

from tests.recordings import CONTRACT, FILES

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

OF_DECODER = ("DeepseekV2DecoderLayer", "DeepseekV2MLP", "DeepseekV2MoE", "MoEGate", "DeepseekV2RMSNorm")
OF_MAIN = (
    *(
        name
        for name in (*CONTRACT["tokenizer"], *CONTRACT["preprocess"])
        if name not in ("get_conv_template", "Conversation")
    ),
    *CONTRACT["postprocess"],
    "NoEOSTextStreamer",
)


def write_small_folder(folder: Path) -> Path:
    """Write the files into ``folder``, which is made."""
    folder.mkdir()
    texts = {
        MAIN: MAIN_TEXT + _functions(OF_MAIN),
        DECODER: DECODER_TEXT + _functions(OF_DECODER),
        ENCODER: _functions((*CONTRACT["sam"], *CONTRACT["clip"], *CONTRACT["projector"])),
        CONVERSATION: _functions(("get_conv_template", "Conversation")),
        CONFIG: _functions(("DeepseekV2Config",)),
    }
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


def _functions(names: tuple[str, ...]) -> str:
    return "".join(f"\n\n{body_of(name)}" for name in names)
