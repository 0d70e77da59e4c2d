"""L2: what the examples with stages have in common, free of mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.mmd import clean_output
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.pipeline import DecodeState, generate
from pytest_dsocr.subjects.protocol import Setup


class Staged:
    """Reads through its own stages: ``vision``, ``prefill``, then step by step."""

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
        inputs = self.inputs(page, prompt=prompt, preset=preset)
        state = self.prefill(inputs, self.vision(inputs).get("vision_fusion"))
        return self.decode(inputs, state, max_new_tokens)

    def decode(self, inputs: Mapping[str, Tensor], state: DecodeState[Any], max_new_tokens: int) -> str:
        policy = replace(self.engine.policy, max_new_tokens=max_new_tokens)
        pad_id, prompt = self.engine.tokenizer.special.pad, inputs["input_ids"][0].tolist()
        tokens = [token for [token] in generate(self.engine.pipeline, state, [prompt], policy, pad_id)]
        return clean_output(self.engine.tokenizer.decode(tokens))
