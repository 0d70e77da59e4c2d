"""The catalogue of mistakes that ports of DeepSeek-OCR made or may make, by the stage that each is about.

A mistake is a row: the end of its id, its words, and what is changed in an engine. Where it was seen in public or what
it is called in ``docs/bugs.md`` stands in the ``ports.toml`` of its model.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from pytest_dsocr.explain.catalogue.decoder import prefill_mistakes
from pytest_dsocr.explain.catalogue.fusion import fusion_mistakes
from pytest_dsocr.explain.catalogue.output import file_mistakes, text_mistakes, written_mistakes
from pytest_dsocr.explain.catalogue.pixels import pixel_mistakes
from pytest_dsocr.explain.catalogue.prompt import prompt_mistakes
from pytest_dsocr.explain.catalogue.reading import reading_mistakes
from pytest_dsocr.explain.catalogue.steps import step_mistakes, token_mistakes
from pytest_dsocr.explain.mistake import Group, Mistake
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.spec import ModelSpec, load


@cache
def groups(family: ModelSpec) -> Mapping[str, Group]:
    """Return a model's mistakes by group, in the order of the stages; what is right of it is no mistake."""
    encoder: Sequence[Group] = load(family.mistakes)()
    prefill = prefill_mistakes()
    every = (
        *(pixel_mistakes(family), prompt_mistakes(family), *encoder, fusion_mistakes(), prefill),
        *(step_mistakes(prefill, family), token_mistakes(family), reading_mistakes(family), text_mistakes()),
        *(written_mistakes(family), file_mistakes(family)),
    )
    return {group.stage: group for group in every}


@cache
def _mistakes(family: ModelSpec) -> Mapping[str, Mistake]:
    return {one.id: one for one in chain(*groups(family).values())}


def mistakes(family: ModelSpec) -> Mapping[str, Mistake]:
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
    family: str = ""
    """The model whose ports it was seen in."""


@cache
def ports() -> Mapping[str, Port]:
    """Return what was seen, by its number."""
    return {
        number: Port(number, **row, family=family.name)
        for family in MODELS.values()
        if family.ports
        for number, row in tomllib.loads(family.ports.read_text(encoding="utf-8")).items()
    }


def seen(family: ModelSpec) -> Sequence[Port]:
    """Return what was seen of a model's mistakes, in its own ports and in those it is based on, the likeliest first."""
    found = [one for one in ports().values() if one.mistake in mistakes(family)]
    found = [one for one in found if one.family in family.lineage]
    return sorted(found, key=lambda one: (one.family != family.name, not one.topic))


@cache
def _twins() -> Mapping[str, Mapping[str, Sequence[str]]]:
    return tomllib.loads(Path(__file__).with_name("twins.toml").read_text(encoding="utf-8"))


def twins(name: str, *, by_text: bool) -> frozenset[str]:
    """Return the mistakes that were seen to give the same text, or the same tensor, without being the same."""
    return frozenset(_twins()["texts" if by_text else "tensors"].get(name, ()))


def resolve(name: str, family: ModelSpec | None = None) -> tuple[ModelSpec, Mistake] | None:
    """Return the mistake of an id in the catalogue, or of a number, and the first family that has it, or ``family``."""
    port = ports().get(name)
    own, named = (port.mistake, [MODELS[port.family]]) if port else (name, [*MODELS.values()])
    having = (one for one in ([family] if family else named) if own in mistakes(one))
    return next(((one, mistakes(one)[own]) for one in having), None)
