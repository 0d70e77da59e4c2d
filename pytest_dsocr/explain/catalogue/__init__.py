"""The catalogue of mistakes that ports of DeepSeek-OCR made or may make, by the stage that each is about.

A mistake is a row: the end of its id, its words, and what is changed in a session. Where it was seen in public or what
it is called in ``docs/bugs.md`` stands in ``ports.toml``.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from pytest_dsocr.explain.catalogue.clip import clip_mistakes
from pytest_dsocr.explain.catalogue.decoder import prefill_mistakes
from pytest_dsocr.explain.catalogue.fusion import fusion_mistakes, projector_mistakes
from pytest_dsocr.explain.catalogue.output import file_mistakes, text_mistakes, written_mistakes
from pytest_dsocr.explain.catalogue.pixels import pixel_mistakes
from pytest_dsocr.explain.catalogue.prompt import prompt_mistakes
from pytest_dsocr.explain.catalogue.reading import reading_mistakes
from pytest_dsocr.explain.catalogue.sam import sam_mistakes
from pytest_dsocr.explain.catalogue.steps import step_mistakes, token_mistakes
from pytest_dsocr.explain.mistake import Group, Mistake
from pytest_dsocr.families import DEFAULT, FAMILIES
from pytest_dsocr.families.family import Family, load


def groups(family: Family = DEFAULT) -> Mapping[str, Group]:
    """Return a family's mistakes by group, in the order of the stages."""
    found: Mapping[str, Group] = load(family.mistakes)(family)
    return found


@cache
def of_family(family: Family) -> Mapping[str, Group]:
    """Make those that a port of any model may have, as this one is: what is right of it is no mistake."""
    front = (pixel_mistakes(family), prompt_mistakes(family), sam_mistakes(), clip_mistakes(), projector_mistakes())
    prefill, behind = prefill_mistakes(), (written_mistakes(family), file_mistakes(family))
    steps = (prefill, step_mistakes(prefill, family), token_mistakes(family), reading_mistakes(family), text_mistakes())
    return {group.stage: group for group in (*front, fusion_mistakes(), *steps, *behind)}


@cache
def _mistakes(family: Family) -> Mapping[str, Mistake]:
    return {one.id: one for one in chain(*groups(family).values())}


def mistakes(family: Family = DEFAULT) -> Mapping[str, Mistake]:
    """Return every mistake of a family by its id."""
    return _mistakes(family)


@dataclass(frozen=True)
class Port:
    """A mistake as it was seen in a port, or thought of here."""

    id: str
    """Its number; a W in it says that it was thought of here."""
    text: str
    """What is done wrong, and how it shows."""
    mistake: str = ""
    """The id in the catalogue; empty where nothing can plant it."""
    topic: str = ""
    """The heading in ``docs/bugs.md``; empty where it is not of a real port."""
    stage: str = ""
    """Where it first shows, see ``Comparison.stage``."""
    page: str = ""
    """The class of page that shows it."""
    shows: str = ""
    """The comparison, or the test, that shows it first in a default run."""
    family: str = DEFAULT.name
    """The model whose ports it was seen in."""


@cache
def ports() -> Mapping[str, Port]:
    """Return what was seen, by its number."""
    rows = tomllib.loads(Path(__file__).with_name("ports.toml").read_text(encoding="utf-8"))
    return {name: Port(name, **row) for name, row in rows.items()}


def seen(family: Family) -> Sequence[Port]:
    """Return what was seen of a family's mistakes, in its own ports and in those of the first, the likeliest first."""
    found = [one for one in ports().values() if one.mistake in mistakes(family)]
    found = [one for one in found if one.family in (family.name, DEFAULT.name)]
    return sorted(found, key=lambda one: (one.family != family.name, not one.topic))


def resolve(name: str, family: Family | None = None) -> tuple[Family, Mistake] | None:
    """Return the mistake of an id in the catalogue, or of a number, and the first family that has it, or ``family``."""
    port = ports().get(name)
    own, named = (port.mistake, [FAMILIES[port.family]]) if port else (name, [*FAMILIES.values()])
    having = (one for one in ([family] if family else named) if own in mistakes(one))
    return next(((one, mistakes(one)[own]) for one in having), None)
