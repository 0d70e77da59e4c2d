"""L2 with right stages, but ``read`` prefills the prompt a second time, without the features of vision.

A real port had this mistake after somebody added a decoding loop for NVTX ranges. It printed one box for a page with
many.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.pipeline import DecodeState, generate
from pytest_dsocr.subjects.protocol import Setup


class SeparatePrefill:
    """A subject with the vendor's stages and a ``read`` that does not use them."""

    def __init__(self, setup: Setup) -> None:
        self.engine = Engine.from_checkpoint(setup.checkpoint, device=setup.device, dtype=setup.dtype)

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        return self.engine.prepare(page, prompt=prompt, preset=preset).tensors

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        seen = self.engine.pipeline.vision(Inputs(**inputs))
        return {"vision_fusion": seen[0].vision_fusion} if seen else {}

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> DecodeState[Any]:
        return self.engine.pipeline.prefill_with(Inputs(**inputs), vision_fusion)

    def step(self, state: DecodeState[Any], token: int) -> Tensor:
        return self.engine.decode_step(state, token)[0]

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        inputs, policy = self.inputs(page, prompt=prompt, preset=preset), self.engine.policy
        self.vision(inputs)
        state, prompt_ids = self.prefill(inputs, None), inputs["input_ids"][0].tolist()
        policy = replace(policy, max_new_tokens=max_new_tokens)
        tokens = generate(self.engine.pipeline, state, [prompt_ids], policy, self.engine.tokenizer.special.pad)
        return clean_output(self.engine.tokenizer.decode([token for [token] in tokens]))
