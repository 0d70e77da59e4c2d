"""Tables of mistakes: rows with a change each, ways to plant a row's change, and the groups that rows become."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import nn

from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.explain.mistake import COARSE, Mistake, Plant, Precision, StagePart, Target


class Row(NamedTuple):
    """A mistake in a table. A plain pair of words and change has none of the rest."""

    words: str
    how: Any
    precision: Precision | None = None
    is_small: bool = False
    needs_crops: bool = False
    kind: str = ""


MistakeTable = dict[str, tuple[str, Any] | Row]
"""Rows by the mistakes' names, or the last part of these."""


def kin(kind: str, table: Mapping[str, tuple[str, Any] | Row], **same: Any) -> dict[str, Row]:
    """Return the rows of one kind under their whole names, with fields that all of them share."""
    return {f"{kind}-{key}": Row(*row)._replace(kind=kind, **same) for key, row in table.items()}


class Group(list[Mistake]):
    """The known mistakes of one stage, the likeliest first.

    Args:
        stage: its name, with which their ids start.
        signs: names of the mistakes that each symptom suggests, the likeliest first.
        stepwise: names of the mistakes for :attr:`Mistake.stepwise`; None for all.
    """

    def __init__(
        self, stage: str, signs: Mapping[Symptom, Sequence[str]] | None = None, stepwise: Collection[str] | None = ()
    ) -> None:
        super().__init__()
        self.stage, self.signs, self.stepwise = stage, signs or {}, stepwise

    def add(self, name: str, words: str, plant: Plant, part: StagePart = "block", **rest: Any) -> None:
        """Add one mistake; ``rest`` are other fields of :class:`Mistake`."""
        fields = {"kind": name, **rest}
        fields["signs"] = {sign: names.index(name) for sign, names in self.signs.items() if name in names}
        fields["stepwise"] = self.stepwise is None or name in self.stepwise
        fields["is_small"] = fields.get("is_small", False) or fields.get("precision") not in (None, COARSE)
        self.append(Mistake(self.stage, name, words, part, plant, **fields))

    def rows(
        self,
        kind: str,
        table: Mapping[str, tuple[str, Any] | Row],
        plant: RowPlant,
        part: StagePart = "block",
        words: str = "{}",
    ) -> None:
        """Add a mistake for each row of a table. Without a ``kind`` the keys are whole names."""
        for name, row in (kin(kind, table) if kind else table).items():
            said, how, precision, is_small, needs_crops, own = Row(*row)
            fields = {"precision": precision, "is_small": is_small, "needs_crops": needs_crops, "kind": own or name}
            self.add(name, phrase(words, said), partial(_planted, plant, how), part, how=how, **fields)

    def of(self, *parts: StagePart) -> list[Mistake]:
        """Return the mistakes in these parts of the stage."""
        return [one for one in self if one.part in parts]


def phrase(words: str, said: str) -> str:
    """Put a row's words into those of its table. A clause at their end gets a comma after it too."""
    _, comma, clause = said.rpartition(", ")
    is_open = comma and " and " not in clause and words.startswith("{} ")
    return words.format(f"{said.removesuffix(',')}," if is_open else said)


def _planted(plant: RowPlant, how: Any, on: Target) -> None:
    plant(on, how)


RowPlant = Callable[[Target, Any], None]
"""Make an engine have the mistake of a row, from the row's change."""
ModuleFinder = Callable[[Target], Iterable[Any]]
"""Find the modules that a mistake changes."""


def inside(*kinds: type[nn.Module]) -> ModuleFinder:
    """Find every module of these classes in the blocks."""
    return lambda on: on.modules(*kinds)


def sets(owner: Any, name: str) -> RowPlant:
    """Plant a row's change as an attribute of a module, a class or an object."""
    return lambda on, value: on.changes.set(owner, name, value)


def _by_change(before: Any, change: Callable[..., Any], *given: Any) -> Any:
    return change(before, *given)


def wraps(find: ModuleFinder, compute: Callable[..., Any] = _by_change, name: str = "forward") -> RowPlant:
    """Plant ``compute(run, change, *given)`` as a method of modules; ``run`` is the method before."""

    def plant(on: Target, change: Any) -> None:
        for module in find(on):
            on.changes.set(module, name, partial(compute, getattr(module, name), change))

    return plant


def runs(find: ModuleFinder, compute: Callable[..., Any] = _by_change) -> RowPlant:
    """Plant ``compute(module, change, *given)`` as the forward of modules."""

    def plant(on: Target, change: Any) -> None:
        for module in find(on):
            on.changes.forward(module, partial(compute, module, change))

    return plant
