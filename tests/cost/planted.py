"""The session with one needless or missing computation each; its outputs are right in all but the last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionSubject

CHECKPOINT = "synthetic:tiny"


class ClipTwice(SessionSubject):
    """Runs all views through CLIP twice."""

    def __init__(self, session: Engine[Any]) -> None:
        super().__init__(session)
        once = session.pipeline.encode

        def twice(stage: str, *given: Tensor) -> Tensor:
            if stage == "clip":
                once(stage, *given)
            return once(stage, *given)

        session.pipeline.encode = twice  # type: ignore[method-assign]


class PromptAgain(SessionSubject):
    """Computes the prompt and all that is written again in each step."""

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        self.given, self.features = Inputs(**inputs), vision_fusion
        return super().prefill(inputs, vision_fusion)

    def step(self, state: Any, token: int) -> Tensor:
        given = self.given
        self.given = replace(
            given,
            input_ids=torch.cat([given.input_ids, torch.tensor([[token]])], dim=1),
            images_seq_mask=torch.cat([given.images_seq_mask, torch.tensor([[False]])], dim=1),
        )
        again = self.session.pipeline.prefill_with(self.given, self.features)
        state.cache, state.logits = again.cache, again.logits
        return again.logits[0]


class Closed(PromptAgain):
    """The same, and shows no modules."""

    module = None  # type: ignore[assignment]


def clip_twice(setup: Setup) -> ClipTwice:
    """Load one as the suites do."""
    return ClipTwice(Engine.from_checkpoint(setup.checkpoint))
