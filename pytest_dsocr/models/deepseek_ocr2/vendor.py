"""The vendor's own encoder: its stages on its model object, a probe of its mask, and how it is built in other sizes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.engine.vendor_model import VendorModel
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr.vendor import build_sam, sized_projector
from pytest_dsocr.models.deepseek_ocr2.sizes import sizes_of

IMAGE, QUERY = 0, 1
"""The vendor's types of tokens."""
PROBED = (IMAGE, IMAGE, QUERY, QUERY)
BROKEN: dict[str, Callable[[Tensor], Any]] = {
    "image token 0 does not see the last one": lambda sees: not sees[0, 1],
    "image tokens see queries": lambda sees: sees[:2, 2:].any(),
    "query 0 sees query 1": lambda sees: sees[2, 3],
    "queries do not see the image and the queries before them": lambda sees: not (sees[2:, :2].all() and sees[3, 2]),
}
"""Ways in which a mask is not the vendor's, each with its test of who sees whom ``[4, 4]``."""


class Deepseek2VendorModel(VendorModel):
    """The vendor's ``DeepseekOCR2ForCausalLM``."""

    @classmethod
    def check(cls, model: Any) -> None:
        """Raise ``DsocrError`` if the tower attends by another mask than that of the vendor's files.

        They override a method that newer versions of transformers never call; the mask is then plain causal.
        """
        sees = probe_mask(model.model.qwen2_model.model)
        if broken := [words for words, is_broken in BROKEN.items() if is_broken(sees)]:
            raise DsocrError(
                f"the Qwen2 tower of the vendor's code has another mask here: {'; '.join(broken)}; it is no "
                "reference; run the vendor's own files in the environment that `dsocr vendor setup` makes"
            )

    def sam(self, pixels: Tensor) -> Tensor:
        """Run the vendor's SAM on views ``[N, 3, S, S]``."""
        return self.model.sam_model(pixels)

    def qwen2(self, sam: Tensor) -> Tensor:
        """Run the vendor's tower on SAM's features."""
        return self.model.qwen2_model(sam)

    def projector(self, qwen2: Tensor) -> Tensor:
        """Run the vendor's projector on the queries' outputs."""
        return self.model.projector(qwen2)


def probe_mask(decoder: Any) -> Tensor:
    """Return which of two image tokens and two queries see which ``[4, 4]``: they change with it in the first layer."""
    weight, random = next(decoder.parameters()), torch.Generator().manual_seed(0)
    before, after = torch.randn(2, len(PROBED), decoder.model.config.hidden_size, generator=random).to(weight)
    columns, layers = [], decoder.model.layers

    def run(tokens: Tensor) -> Tensor:
        out: Tensor = decoder(tokens[None], torch.tensor([PROBED]))[0][0]
        return out

    decoder.model.layers = layers[:1]  # through several layers a token sees what those that it sees have seen
    try:
        with torch.no_grad():
            unchanged = run(before)
            for k in range(len(PROBED)):
                tokens = before.clone()
                tokens[k] = after[k]
                columns.append((run(tokens) != unchanged).any(dim=-1))
    finally:
        decoder.model.layers = layers
    return torch.stack(columns, dim=1).cpu()


def builders(modeling: Any, encoder: Any, arch: Architecture) -> dict[str, Callable[..., Any]]:
    """Return functions that replace the vendor's, as :func:`pytest_dsocr.models.deepseek_ocr.vendor.builders` does."""
    sizes, build_tower = sizes_of(arch), modeling.build_qwen2_decoder_as_encoder
    tower = {
        "decoder_layer": sizes.tower.layers,
        "hidden_dimension": sizes.tower.dim,
        "num_attention_heads": sizes.tower.heads,
        "num_key_value_heads": sizes.tower.key_value_heads,
        "intermediate_size": sizes.tower.intermediate_size,
    }
    return {
        "build_sam_vit_b": lambda: build_sam(encoder, sizes.sam),
        "build_qwen2_decoder_as_encoder": lambda: build_tower(**tower),
        "MlpProjector": sized_projector(modeling, arch),
    }
