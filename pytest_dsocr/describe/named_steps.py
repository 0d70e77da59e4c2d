"""Names of several steps inside of a block: numbered modules with equal parts, such as experts, in one phrase."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pytest_dsocr.base.words import joined, listed
from pytest_dsocr.describe.pair import ranges
from pytest_dsocr.describe.step import InnerStep, where_of


class Numbered(NamedTuple):
    """A step of a module inside of a numbered one, such as ``mlp.experts.3.down_proj``."""

    is_input: bool
    home: str
    """Path of the list of numbered modules."""
    number: int
    part: str
    """Path inside of the numbered module."""

    @classmethod
    def of(cls, step: InnerStep) -> Numbered | None:
        """Return the parts of a step's path; None if it has no number, or several."""
        parts = step.path.split(".")
        places = [place for place, one in enumerate(parts) if one.isdecimal()]
        if step.call is None or len(places) != 1 or "," in step.path or not 0 < places[0] < len(parts) - 1:
            return None
        at = places[0]
        return cls(step.is_input, ".".join(parts[:at]), int(parts[at]), ".".join(parts[at + 1 :]))


def names_of(steps: Sequence[InnerStep], every: Iterable[InnerStep]) -> tuple[str, bool]:
    """Return a phrase for some steps of all, and whether it is about one step."""
    numbered = dict[tuple[bool, str, str], list[int]]()
    singles = list[str]()
    for step in steps:
        if (one := Numbered.of(step)) is None:
            singles.append(where_of(step))
        else:
            numbered.setdefault((one.is_input, one.home, one.part), []).append(one.number)
    known = dict[tuple[bool, str, str], set[int]]()
    for other in filter(None, map(Numbered.of, every)):
        known.setdefault((other.is_input, other.home, other.part), set()).add(other.number)
    together = dict[tuple[bool, str, tuple[int, ...], bool], list[str]]()
    for (is_input, home, part), numbers in numbered.items():
        is_all = {*numbers} == known.get((is_input, home, part), set())
        together.setdefault((is_input, home, tuple(sorted({*numbers})), is_all), []).append(part)
    phrases = [_phrase(*key, parts) for key, parts in together.items()]
    return listed([*phrases, *singles]), len(steps) == 1


def _phrase(is_input: bool, home: str, numbers: tuple[int, ...], is_all: bool, parts: Sequence[str]) -> str:
    what = "input" if is_input else "output"
    if len(numbers) == 1:
        of = [f"`{home}.{numbers[0]}.{one}`" for one in parts]
        return f"the {what}{'s' * (len(parts) > 1)} of {joined(of)}"
    of = [f"`{one}`" for one in parts]
    which = f"all {len(numbers)} modules of `{home}`" if is_all else f"`{home}` {ranges(numbers)}"
    return f"the {what}s of {joined(of)} in {which}"


def right_beside(wrong: Sequence[InnerStep], steps: Iterable[InnerStep]) -> str:
    """Name the modules with the names of wrong parts of numbered ones that are right throughout; empty if none are."""
    faults = list(filter(None, map(Numbered.of, wrong)))
    parts = {(one.is_input, one.part) for one in faults}
    bad = {step.path for step in wrong}
    homes = dict[str, set[tuple[bool, str]]]()
    for step in steps:
        home, _, name = step.path.rpartition(".")
        if step.path not in bad and Numbered.of(step) is None and (step.is_input, name) in parts:
            homes.setdefault(home, set()).add((step.is_input, name))
    found = [f"`{home}`" for home, own in homes.items() if own == parts]
    return f"; the same of {joined(found)} {'is' if len(parts) == 1 else 'are'} right" if found else ""
