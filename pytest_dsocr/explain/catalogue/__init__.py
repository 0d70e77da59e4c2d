"""Catalogue of the mistakes that ports made or may make, by the stage that each is about.

A mistake is a row in a table: its name, its words, and the change of an engine. The ``ports.toml`` of its model has the
places where it was seen in public and its number in ``docs/bugs.md``.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from pytest_dsocr.explain.catalogue.decoder import prefill_mistakes
from pytest_dsocr.explain.catalogue.fusion import fusion_mistakes
from pytest_dsocr.explain.catalogue.output import file_mistakes, written_mistakes
from pytest_dsocr.explain.catalogue.pixels import pixel_mistakes
from pytest_dsocr.explain.catalogue.prompt import prompt_mistakes
from pytest_dsocr.explain.catalogue.reading import reading_mistakes
from pytest_dsocr.explain.catalogue.steps import step_mistakes, token_mistakes
from pytest_dsocr.explain.catalogue.text import text_mistakes
from pytest_dsocr.explain.mistake import Mistake
from pytest_dsocr.explain.rows import Group
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.spec import ModelSpec, load


@cache
def groups(family: ModelSpec) -> Mapping[str, Group]:
    """Return the mistakes of a model by group, in the order of the stages."""
    encoder: Sequence[Group] = load(family.mistakes)()
    prefill = prefill_mistakes()
    every = (
        *(pixel_mistakes(family), prompt_mistakes(family), *encoder, fusion_mistakes(family.layout), prefill),
        *(step_mistakes(prefill, family), token_mistakes(family), reading_mistakes(family), text_mistakes()),
        *(written_mistakes(family), file_mistakes(family)),
    )
    return {group.stage: group for group in every}


@cache
def _mistakes(family: ModelSpec) -> Mapping[str, Mistake]:
    return {one.id: one for one in chain(*groups(family).values())}


def mistakes(family: ModelSpec) -> Mapping[str, Mistake]:
    """Return the mistakes of a model by id."""
    return _mistakes(family)


@dataclass(frozen=True)
class Port:
    """Mistake that was seen in a port, or that this project thought of."""

    id: str
    """Number; a W in it means that this project thought of it."""
    text: str
    """Description of the mistake and its symptoms."""
    mistake: str = ""
    """Id in the catalogue; empty if nothing plants it."""
    topic: str = ""
    """Heading in ``docs/bugs.md``; empty if no real port had it."""
    stage: str = ""
    """Stage that shows it first, as in ``Comparison.stage``."""
    page: str = ""
    """Class of pages that show it."""
    shows: str = ""
    """Comparison, or test, that shows it first in a default run."""
    family: str = ""
    """Model of the ports that it was seen in."""


@cache
def ports() -> Mapping[str, Port]:
    """Return the mistakes seen in ports, by number."""
    return {
        number: Port(number, **row, family=family.name)
        for family in MODELS.values()
        if family.ports
        for number, row in tomllib.loads(family.ports.read_text(encoding="utf-8")).items()
    }


def seen(family: ModelSpec) -> Sequence[Port]:
    """Return the mistakes seen in ports of a model and of the models it is based on, the likeliest first."""
    found = [one for one in ports().values() if one.mistake in mistakes(family)]
    found = [one for one in found if one.family in family.lineage]
    return sorted(found, key=lambda one: (one.family != family.name, not one.topic))


@cache
def _twins() -> Mapping[str, Mapping[str, Sequence[str]]]:
    return tomllib.loads(Path(__file__).with_name("twins.toml").read_text(encoding="utf-8"))


def twins(name: str, *, by_text: bool) -> frozenset[str]:
    """Return the other mistakes that gave the same text, or the same tensor, on some page."""
    return frozenset(_twins()["texts" if by_text else "tensors"].get(name, ()))


def resolve(name: str, family: ModelSpec | None = None) -> tuple[ModelSpec, Mistake] | None:
    """Return the mistake of an id or a number, with ``family`` or else the first model that has it."""
    port = ports().get(name)
    own, named = (port.mistake, [MODELS[port.family]]) if port else (name, [*MODELS.values()])
    having = (one for one in ([family] if family else named) if own in mistakes(one))
    return next(((one, mistakes(one)[own]) for one in having), None)
