"""A known mistake: what somebody does wrong, in words, and how a loaded engine is made to do it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal
from unittest.mock import patch

from torch import Tensor, nn

from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.model import EngineModel

StagePart = Literal["front", "block", "wide", "back"]
"""Of a stage: what is in front of its first block, the blocks, and what is behind the last one. What is ``wide`` is of
blocks, and changes which places of a view see one another."""
ALL = "all"
"""The group of mistakes in vision and decoder alike."""
ALONE = "@"
"""In an id stands in front of the one block that has the mistake."""


class Changes(ExitStack):
    """Changes of attributes and weights, undone in the opposite order when the context ends, or by ``close``."""

    made = 0
    """How many were made."""

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute that ``owner``, a module, a class or an object, has.

        Raises:
            AttributeError: where it has none, as a mistake whose place was renamed would change nothing.
        """
        self.made += 1
        if isinstance(owner, nn.Module) and name in {*owner._parameters, *owner._modules, *owner._buffers}:
            self.callback(setattr, owner, name, getattr(owner, name))  # a buffer that is deleted is none afterwards
            setattr(owner, name, value)
        else:
            self.enter_context(patch.object(owner, name, value))

    def weight(self, parameter: Tensor, value: Tensor, *, own_dtype: bool = True) -> None:
        """Replace a parameter's values, in its own dtype or in that of the new values."""
        self.made += 1
        before = parameter.data
        self.callback(setattr, parameter, "data", before)
        parameter.data = (value.to(before.dtype) if own_dtype else value).contiguous()

    def forward(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        """Replace the forward of one module by a function that is called without the module."""
        self.set(module, "forward", forward)

    def around(self, module: nn.Module, change: Callable[..., Any]) -> None:
        """Replace the forward of one module by ``change(run, *args)``, where ``run`` is the forward before."""
        self.forward(module, partial(change, module.forward))


def model_of(engine: Engine[Any]) -> EngineModel:
    """Return the model of an engine, with its modules."""
    assert isinstance(engine.model, EngineModel)
    return engine.model


def home_of(engine: Engine[Any], stage: str) -> tuple[nn.Module | None, str]:
    """Return the module that holds a stage's blocks and the attribute's name; None of a stage without blocks."""
    known = engine.family.stage.get(stage)
    owner, _, name = known.blocks.rpartition(".") if known else ("", "", "")
    return (model_of(engine).get_submodule(owner) if name else None), name


def blocks_of(engine: Engine[Any], stage: str) -> list[Any]:
    """Return a stage's blocks."""
    owner, name = home_of(engine, stage)
    return [*getattr(owner, name)] if owner else []


def image_places(mask: Tensor) -> tuple[int, int]:
    """Return the first position of the image's tokens in ``images_seq_mask`` ``[1, S]``, and the first behind them."""
    places = mask[0].nonzero().flatten().tolist()
    return (places[0], places[-1] + 1) if places else (0, 0)


@dataclass(frozen=True)
class Target:
    """An engine, and what a mistake changes of it."""

    engine: Engine[Any]
    changes: Changes
    blocks: Sequence[Any] = ()
    """The blocks that are computed: one, or all of a stage."""
    prompt_image: tuple[int, int] = (0, 0)
    """The first position of the prompt's image tokens, and the first behind them."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What else a mistake may need, by name."""

    @classmethod
    def of_stage(
        cls, engine: Engine[Any], changes: Changes, stage: str, image: tuple[int, int] = (0, 0), **notes: Any
    ) -> Target:
        """Return the target of a whole stage."""
        blocks = blocks_of(engine, stage)
        return cls(engine, changes, blocks, image, {"all_blocks": blocks, "first": 0, "stage": stage, **notes})

    @property
    def model(self) -> EngineModel:
        """The engine's model."""
        return model_of(self.engine)

    @property
    def core(self) -> Any:
        """Everything of the model but its head."""
        return self.model.model

    def modules(self, *kinds: type[nn.Module]) -> Iterator[Any]:
        """Yield every module of these classes inside the blocks."""
        for block in self.blocks:
            yield from (module for module in block.modules() if isinstance(module, kinds))


Plant = Callable[[Target], None]
"""Makes an engine have the mistake until its changes are undone."""


@dataclass(frozen=True)
class Mistake:
    """One known mistake."""

    id: str
    words: str
    """What was done, behind "with": "the exact GELU in place of ..."."""
    part: StagePart
    plant: Plant
    signs: Mapping[Symptom, int] = field(default_factory=dict)
    """What is seen of a comparison that makes this one likely, each with how many are likelier then."""


class Group(list[Mistake]):
    """The known mistakes of one stage, the likeliest first.

    Args:
        stage: the beginning of their ids.
        signs: which of them each points at, by the ends of their ids, the likeliest first.
    """

    def __init__(self, stage: str, signs: Mapping[Symptom, Sequence[str]] | None = None) -> None:
        super().__init__()
        self.stage, self.signs = stage, signs or {}

    def add(self, name: str, words: str, plant: Plant, part: StagePart = "block") -> None:
        """Add one mistake."""
        signs = {sign: names.index(name) for sign, names in self.signs.items() if name in names}
        self.append(Mistake(f"{self.stage}.{name}", words, part, plant, signs))

    def rows(
        self,
        prefix: str,
        table: Mapping[str, tuple[str, Any]],
        plant: Callable[[Target, Any], None],
        part: StagePart = "block",
        words: str = "{}",
    ) -> None:
        """Add a mistake for each row of a table, which has its words and the arguments of ``plant``."""
        for key, (said, how) in table.items():
            self.add(f"{prefix}{key}", words.format(said), partial(_planted, plant, how), part)

    def of(self, *parts: StagePart) -> list[Mistake]:
        """Return those of some parts."""
        return [one for one in self if one.part in parts]


OF_SEVERAL = re.compile(r"\.(block-left-out|block-before|blocks-)")
"""Ids of mistakes about more than one block."""


def in_one_block(group: Iterable[Mistake], engine: Engine[Any]) -> Iterator[Mistake]:
    """Yield those of a stage that act block by block, each in one block alone, where the stage has several."""
    for one in group:
        stage = one.id.partition(".")[0]
        count = len(blocks_of(engine, stage))
        if one.part in ("block", "wide") and not OF_SEVERAL.search(one.id) and count > 1 and _keeps_to(one, engine):
            for k in range(count):
                words, plant = f"{one.words}, in block {k} alone", partial(_in_block, one.plant, k)
                yield replace(one, id=f"{one.id}{ALONE}{k}", words=words, plant=plant, signs={})


def _in_block(plant: Plant, k: int, on: Target) -> None:
    own = on.blocks[k : k + 1]
    plant(replace(on, blocks=own, notes={**on.notes, "all_blocks": own, "first": 0, "stage": ""}))


def _keeps_to(one: Mistake, engine: Engine[Any]) -> bool:
    """Return whether a mistake changes nothing outside of the blocks that it is planted in."""
    with Changes() as changes, suppress(IndexError):  # it needs a block
        one.plant(Target(engine, changes, notes={"all_blocks": (), "first": 0, "stage": ""}))
        return not changes.made
    return True


def _planted(plant: Callable[[Target, Any], None], how: Any, on: Target) -> None:
    plant(on, how)
