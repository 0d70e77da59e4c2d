"""A what-if: one mistake that a port may have, in words, and how the session is made to have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.session import Session
from pytest_dsocr.explain.changes import Changes

Part = Literal["front", "block", "wide", "back"]
"""Of a stage: what is in front of its first block, the blocks, and what is behind the last one. What is ``wide`` is of
blocks, and changes which places of a view see one another."""


@dataclass(frozen=True)
class Bench:
    """A session, and what a what-if changes of it."""

    session: Session[Any]
    changes: Changes
    blocks: Sequence[Any] = ()
    """The blocks that are computed: one, or all of a stage."""
    prompt_image: tuple[int, int] = (0, 0)
    """The first position of the prompt's image tokens, and the first behind them."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What else a what-if may need, by name."""

    @property
    def model(self) -> DeepseekOCR:
        """The engine's model."""
        model = self.session.model
        assert isinstance(model, DeepseekOCR)
        return model

    @property
    def core(self) -> Any:
        """Everything of the model but its head."""
        return self.model.model

    def modules(self, *kinds: type[nn.Module]) -> Iterator[Any]:
        """Yield every module of these classes inside the blocks."""
        for block in self.blocks:
            yield from (module for module in block.modules() if isinstance(module, kinds))


Plant = Callable[[Bench], None]
"""Makes a session have the mistake until its changes are undone."""


@dataclass(frozen=True)
class WhatIf:
    """One mistake."""

    id: str
    words: str
    """What was done, behind "with": "the exact GELU in place of ..."."""
    part: Part
    plant: Plant


class Family(list[WhatIf]):
    """The what-ifs of one stage, what is likeliest first.

    Args:
        stage: the beginning of their ids.
    """

    def __init__(self, stage: str) -> None:
        super().__init__()
        self.stage = stage

    def add(self, name: str, words: str, plant: Plant, part: Part = "block") -> None:
        """Take one more."""
        self.append(WhatIf(f"{self.stage}.{name}", words, part, plant))

    def __call__(self, name: str, words: str, part: Part = "block") -> Callable[[Plant], Plant]:
        """Take the function below."""

        def take(plant: Plant) -> Plant:
            self.add(name, words, plant, part)
            return plant

        return take

    def of(self, *parts: Part) -> list[WhatIf]:
        """Give those of some parts."""
        return [one for one in self if one.part in parts]
