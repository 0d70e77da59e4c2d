"""The engine as a subject, open to its modules; it may run the vendor's model as well."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pytest_dsocr.contract import StageWatch
from pytest_dsocr.contract.artifacts import write_artifacts
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine, EngineKind
from pytest_dsocr.engine.pipeline import DecodeState
from pytest_dsocr.subjects.protocol import Setup


class EngineStages:
    """An engine's stages and modules, without a reading of its own.

    Args:
        engine: any engine, around its own model or the vendor's.
    """

    def __init__(self, engine: Engine[Any]) -> None:
        self.engine = engine

    @property
    def seams(self) -> tuple[str, ...]:
        """Names of the tensors that ``vision`` returns."""
        return self.engine.family.vision_seams

    @property
    def dtype(self) -> str:
        """Dtype of the weights, such as ``float32``."""
        return str(self.engine.model.dtype).removeprefix("torch.")

    @property
    def policy(self) -> DecodePolicy:
        """Rule by which tokens are chosen, and the token that ends the output."""
        return self.engine.policy

    @contextmanager
    def watched(self, stages: StageWatch) -> Iterator[None]:
        """Enter ``stages(name)`` around each stage, within a method or not, until the context is left."""
        self.engine.stages.also = stages
        try:
            yield
        finally:
            self.engine.stages.also = None

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Encode each image and return the seams, concatenated over images; none if the model skips the pixels."""
        seams = [vision.seams for vision in self.engine.pipeline.vision(Inputs(**inputs))]
        if len(seams) == 1:
            return dict(seams[0])
        return {name: torch.cat([one[name] for one in seams if name in one]) for one in seams for name in one}

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> DecodeState[Any]:
        """Run the prompt with these features at its image tokens."""
        return self.engine.pipeline.prefill_with(Inputs(**inputs), vision_fusion)

    def step(self, state: Any, token: int) -> Tensor:
        """Feed one token; returns the next logits ``[V]``, and moves ``state`` on."""
        return self.engine.decode_step(state, token)[0]

    def module(self, name: str) -> nn.Module:
        """Return the module that the vendor calls ``name``; raise ``AttributeError`` where there is none."""
        return self.engine.model.get_submodule(name)


class EngineSubject(EngineStages):
    """The engine as a subject of L3, an ``OpenSubject``."""

    dtypes: tuple[str, ...] = ("bfloat16",)

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Read one page to its end."""
        return self.engine.run(page, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens).text

    def read_many(self, pages: Sequence[Path], *, prompt: str, preset: Preset, max_new_tokens: int) -> list[str]:
        """Read several pages as the rows of one batch."""
        results = self.engine.run_batch(pages, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)
        return [result.text for result in results]

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        """Return what goes into the model, on its device."""
        return self.engine.prepare(page, prompt=prompt, preset=preset).tensors

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Decode tokens, special ones kept."""
        return self.engine.tokenizer.decode(token_ids)

    def write(self, text: str, page: Path, folder: Path) -> None:
        """Write ``result.mmd`` and the other files that the vendor writes."""
        write_artifacts(text, page, folder, self.engine.family.form)


def engine_subject(setup: Setup, engine: EngineKind = "readable") -> EngineSubject:
    """Load an engine as a subject; raise ``DsocrError`` if checkpoint, device, dtype or attention is missing."""
    return EngineSubject(
        Engine.from_checkpoint(
            setup.checkpoint, device=setup.device, dtype=setup.dtype, attention=setup.attention, engine=engine
        )
    )
