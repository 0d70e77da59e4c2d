"""Two mistakes of one stage as one: of pixels, of the prompt, or of the fusion, where ports often have several."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from pytest_dsocr.explain.catalogue.fusion import lay_out
from pytest_dsocr.explain.catalogue.pixels import plant_recipe
from pytest_dsocr.explain.catalogue.prompt import TEXTS, is_built
from pytest_dsocr.explain.mistake import Mistake, Target
from pytest_dsocr.explain.rows import RowPlant
from pytest_dsocr.models.spec import FUSION

PLANTS: Mapping[str, RowPlant] = {"pixels": plant_recipe, FUSION: lay_out}
"""Functions that plant a row's change, where changes of several fields are one change."""


def together(one: Mistake, other: Mistake) -> Mistake | None:
    """Return two mistakes as one, or None if they change the same thing or are of different stages."""
    words, name = f"{one.words}, and {other.words}", f"{one.name}+{other.name}"
    if one.group != other.group:
        return None
    if plant := PLANTS.get(one.group):
        if not (isinstance(one.how, dict) and isinstance(other.how, dict)) or {*one.how} & {*other.how}:
            return None
        how = {**one.how, **other.how}
        return replace(one, name=name, words=words, how=how, plant=lambda on: plant(on, how))
    if is_built(one) and other.name in TEXTS:
        return replace(one, name=name, words=words, plant=partial(_in_turn, one, other))
    return None


def added(base: Mistake | None, one: Mistake | None) -> Mistake | None:
    """Return a mistake of inputs on top of those that are known already."""
    if base is None or one is None:
        return base or one
    return together(base, one) or replace(one, plant=partial(_in_turn, base, one))


def _in_turn(one: Mistake, other: Mistake, on: Target) -> None:
    one.plant(on)
    other.plant(on)
