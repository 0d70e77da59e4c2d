"""Known mistakes: a description of each, and the change that makes a loaded engine have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal
from unittest.mock import patch

import torch
from torch import Tensor, nn

from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.model import EngineModel

StagePart = Literal["front", "block", "wide", "back"]
"""A part of a stage: before its first block, a block, or after the last one. A ``wide`` mistake is in a block and
changes which places of a view see one another."""
Precision = Literal["bfloat16", "float16", "tf32", "fp8", "int8", "int4"]
"""A format with fewer bits than float32."""
COARSE: Precision = "int4"
"""Format that changes numbers by more than rounding does."""
ALL = "all"
"""Group of the mistakes in all blocks of vision and of the decoder."""
POSITIONS = "pos"
"""Part of the names of parameters that are added as positions."""
NEVER_FILLED = "never-filled"
"""Kind of the mistakes that leave weights as they were allocated."""


class Changes(ExitStack):
    """Changes of attributes and weights, undone in the opposite order when the context ends, or by ``close``."""

    made = 0
    """Number of changes made."""

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a module, a class or an object.

        Raises:
            AttributeError: if ``owner`` has no such attribute: under its old name a mistake would change nothing.
        """
        self.made += 1
        if isinstance(owner, nn.Module) and name in {*owner._parameters, *owner._modules, *owner._buffers}:
            self.callback(setattr, owner, name, getattr(owner, name))  # a deleted buffer would not be one again
            setattr(owner, name, value)
        else:
            self.enter_context(patch.object(owner, name, value))

    def weight(self, parameter: Tensor, value: Tensor, *, own_dtype: bool = True) -> None:
        """Replace a parameter's values; keep its dtype, or take that of the new values."""
        self.made += 1
        before = parameter.data
        self.callback(setattr, parameter, "data", before)
        parameter.data = (value.to(before.dtype) if own_dtype else value).contiguous()

    def forward(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        """Replace a module's forward by a function of its arguments."""
        self.set(module, "forward", forward)

    def around(self, module: nn.Module, change: Callable[..., Any]) -> None:
        """Replace a module's forward by ``change(run, *args)``; ``run`` is the forward before."""
        self.forward(module, partial(change, module.forward))


def model_of(engine: Engine[Any]) -> EngineModel:
    """Return the model of an engine, with its modules."""
    assert isinstance(engine.model, EngineModel)
    return engine.model


def home_of(engine: Engine[Any], stage: str) -> tuple[nn.Module | None, str]:
    """Return the module that has a stage's blocks, and its attribute; None for a stage without blocks."""
    known = engine.family.stage.get(stage)
    owner, _, name = known.blocks.rpartition(".") if known else ("", "", "")
    return (model_of(engine).get_submodule(owner) if name else None), name


def blocks_of(engine: Engine[Any], stage: str) -> list[Any]:
    """Return a stage's blocks."""
    owner, name = home_of(engine, stage)
    return [*getattr(owner, name)] if owner else []


def tables_of(engine: Engine[Any], stage: str) -> list[Tensor]:
    """Return a stage's tables of absolute positions."""
    _, attribute = home_of(engine, stage)
    of = model_of(engine).get_submodule(engine.family.stage[stage].module).named_parameters()
    return [one for path, one in of if POSITIONS in path and f"{attribute}." not in path]


@contextmanager
def without_positions(engine: Engine[Any], stage: str) -> Iterator[None]:
    """Set a stage's tables of absolute positions to zero for a while."""
    with Changes() as changes:
        for one in tables_of(engine, stage):
            changes.weight(one, torch.zeros_like(one))
        yield


def image_places(mask: Tensor) -> tuple[int, int]:
    """Return the position of the image's first token in ``images_seq_mask`` ``[1, S]``, and that after its last."""
    places = mask[0].nonzero().flatten().tolist()
    return (places[0], places[-1] + 1) if places else (0, 0)


@dataclass(frozen=True)
class PromptState:
    """A prompt that the engine reads, or has read."""

    image: tuple[int, int] = (0, 0)
    """Position of the image's first token, and the position after its last one."""
    length: int = 0
    """Number of its tokens."""
    last: int = 0
    """Id of its last token."""
    logits: Tensor | None = None
    """Logits ``[1, V]`` after its last token, if it has been read."""

    @classmethod
    def of(cls, inputs: Inputs, logits: Tensor | None = None) -> PromptState:
        """Return the state of a case's prompt."""
        return cls(image_places(inputs.images_seq_mask), inputs.prompt_tokens, int(inputs.input_ids[0, -1]), logits)


@dataclass(frozen=True)
class Target:
    """An engine to change, and the part of it that a mistake is planted in."""

    engine: Engine[Any]
    changes: Changes
    stage: str = ""
    """Stage of the blocks; empty if only one block of it is changed."""
    blocks: Sequence[Any] = ()
    """Blocks to change: one, several or all of the stage."""
    all_blocks: Sequence[Any] = ()
    """All blocks of the stage."""
    first: int = 0
    """Index of the first of ``blocks`` among ``all_blocks``."""
    prompt: PromptState = PromptState()

    @classmethod
    def of_stage(cls, engine: Engine[Any], changes: Changes, stage: str, prompt: PromptState = PromptState()) -> Target:
        """Return the target of a whole stage."""
        blocks = blocks_of(engine, stage)
        return cls(engine, changes, stage, blocks, blocks, prompt=prompt)

    @property
    def model(self) -> EngineModel:
        """The engine's model."""
        return model_of(self.engine)

    @property
    def core(self) -> Any:
        """The model without its head."""
        return self.model.model

    def modules(self, *kinds: type[nn.Module]) -> Iterator[Any]:
        """Yield every module of these classes inside the blocks."""
        for block in self.blocks:
            yield from (module for module in block.modules() if isinstance(module, kinds))


Plant = Callable[[Target], None]
"""Make an engine have the mistake until its changes are undone."""


@dataclass(frozen=True)
class Mistake:
    """A known mistake."""

    group: str
    """Stage, or part of the work, that it is about."""
    name: str
    """Name in its group."""
    words: str
    """Description that follows "with", such as "no causal mask in the decoder"."""
    part: StagePart
    plant: Plant
    kind: str = ""
    """Name that similar mistakes of a group share, such as those of the grid; a single mistake's own name."""
    how: Any = None
    """Change of its row, which its table's ``plant`` takes."""
    signs: Mapping[Symptom, int] = field(default_factory=dict)
    """Symptoms that make it likely, each with the number of mistakes that are likelier."""
    precision: Precision | None = None
    """Format that its numbers are rounded to."""
    is_small: bool = False
    """Whether it changes numbers by about as much as rounding does."""
    needs_crops: bool = False
    """Whether it may leave pages without crops as they are."""
    stepwise: bool = False
    """Whether it shows only in single steps, and not if several tokens are decoded at once."""
    in_steps: bool = False
    """Whether it is a mistake of the prompt's pass that is in steps alone."""
    spans_blocks: bool = False
    """Whether it is about more than one block."""
    block: int | None = None
    """Index of the one block that has it; None if it is in every block."""

    @property
    def id(self) -> str:
        """Unique name, such as ``STAGE.activation-erf``, and ``STAGE.activation-erf@2`` in the third block."""
        alone = "" if self.block is None else f"@{self.block}"
        return f"{self.group}.{self.name}{alone}"


def in_one_block(group: Iterable[Mistake], engine: Engine[Any]) -> Iterator[Mistake]:
    """Yield each mistake that acts block by block once for each block, if the stage has several."""
    for one in group:
        count = len(blocks_of(engine, one.group))
        if one.part in ("block", "wide") and not one.spans_blocks and count > 1 and _keeps_to(one, engine):
            for k in range(count):
                words, plant = f"{one.words}, in block {k} alone", partial(_in_block, one.plant, k)
                yield replace(one, block=k, words=words, plant=plant, signs={})


def _in_block(plant: Plant, k: int, on: Target) -> None:
    own = on.blocks[k : k + 1]
    plant(replace(on, stage="", blocks=own, all_blocks=own, first=0))


def _keeps_to(one: Mistake, engine: Engine[Any]) -> bool:
    """Return whether a mistake changes nothing outside of the blocks that it is planted in."""
    with Changes() as changes, suppress(IndexError):  # it needs a block
        one.plant(Target(engine, changes))
        return not changes.made
    return True
