"""How a subject makes its pixels: the vendor's recipe under the known mistakes that together give the subject's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_dsocr.contract.presets import Preset

from .asked import Asked, Drawn, sizes_of

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

    from pytest_dsocr.explain.catalogue.pixels import Recipe

CHANGES = {
    "images_ori": ("resize", "colour", "place", "offset", "rounded", "squash", "opened", "levels"),
    "images_crop": ("resize", "cropped", "opened", "levels"),
}
"""What of a recipe a view comes of."""
PLAIN = {"images_ori": ("portrait", "base"), "images_crop": ("landscape", "gundam")}
"""A drawn page and a preset in which whatever is wrong with every page shows."""
SAME = 1e-5
"""Pixels from -1 to 1 that differ by no more are the same, whatever their dtypes."""
TIMES_NEARER = 10
"""So many times nearer does a mistake come that is there, where something else that is unknown is left."""


class Change(NamedTuple):
    """What a known mistake changes of the recipe."""

    field: str
    value: Any
    words: str


Made = Mapping[str, Change]
"""A recipe: what is other than in the vendor's, by field."""


class View(NamedTuple):
    """Pixels ``[N, 3, V, V]`` that the subject made of a page."""

    what: str
    page: Path
    preset: Preset
    actual: Tensor

    def apart(self, made: Made) -> float:
        """Return the mean distance of what a recipe makes; 0 of the same, and infinity of another shape."""
        from pytest_dsocr.explain.catalogue.pixels import Recipe, levels

        values = {name: one.value for name, one in made.items()}
        normalise = values.pop("levels", Recipe.levels)
        views = _views(self.what, self.page, self.preset, replace(Recipe(), **values))
        if len(views) != len(self.actual) or views[0].size != tuple(self.actual.shape[2:]):
            return float("inf")
        apart = (normalise(levels(views)).float() - self.actual).abs_()
        return 0.0 if apart.max() <= SAME else float(apart.mean())


@lru_cache(maxsize=1)
def _page(file: Path, opened: Callable[[Any], Image.Image]) -> Image.Image:
    return opened(file)


@lru_cache(maxsize=1)
def _views(what: str, file: Path, preset: Preset, recipe: Recipe) -> Sequence[Image.Image]:
    """Return the views of a page; recipes that differ in their levels alone have the same."""
    page = _page(file, recipe.opened)
    if what == "images_ori":
        return [recipe.view(page, preset)]
    return recipe.crops(page, preset.grid(*page.size), preset.tiling.crop_px)


@dataclass(frozen=True)
class Recipes:
    """Finds recipes: of a plain page first, and of another page only where that recipe is not its own as well."""

    asked: Asked
    drawn: Drawn
    _found: dict[str, tuple[View, list[Made]]] = field(default_factory=dict)
    """The plain page of each kind of view, its recipe, and those of other pages."""

    def hints(self, what: str, page: Path, preset: Preset, otherwise: str) -> Iterator[str]:
        """Yield what makes a view differ from the vendor's, where that is known and the plain page does not refute it.

        Args:
            what: ``images_ori`` or ``images_crop``.
            page: a file.
            preset: in which it is seen.
            otherwise: what the page is there for: said where the plain page is explained, and this one is not.
        """
        view = self._view(what, page, preset)
        if what not in self._found:
            name, usual = PLAIN[what]
            first = self._view(what, self.drawn(name), sizes_of(usual, self.asked.family))
            self._found[what] = first, [_sought(first, {})]
        plain, found = self._found[what]
        if plain.apart(found[0]):
            yield from said(_needed(view, found[0]))
            return
        made = next((one for one in found if not view.apart(one)), None) or _sought(view, found[0])
        if view.apart(made) or plain.apart(made):
            yield from [otherwise] * bool(otherwise)
            return
        if made not in found:
            found.append(made)
        yield from said(_with_equals(made, (plain, view)))

    def _view(self, what: str, page: Path, preset: Preset) -> View:
        return View(what, page, preset, self.asked.tensors(page, preset)[what].float().cpu())


@cache
def _options(what: str) -> Sequence[Change]:
    from pytest_dsocr.explain.catalogue.pixels import CHANGED

    every = (Change(name, value, words) for words, how in CHANGED.values() for name, value in how.items())
    return [one for one in every if one.field in CHANGES[what]]


def _without(made: Made, name: str) -> Made:
    return {key: one for key, one in made.items() if key != name}


def _sought(view: View, made: Made) -> Made:
    """Change what comes nearest, one after the other, until the view is the same or nothing comes nearer."""
    least = view.apart(made)
    while least:
        tried = [_without(made, name) for name in made]
        tried += [{**made, one.field: one} for one in _options(view.what)]
        distance, nearest = min(((view.apart(one), one) for one in tried), key=lambda pair: pair[0])
        if distance >= least:
            break
        least, made = distance, nearest
    return made


def _needed(view: View, made: Made) -> Sequence[Sequence[Change]]:
    """Return the changes without which the view is many times further away."""
    least = view.apart(made)
    return [[one] for name, one in made.items() if view.apart(_without(made, name)) >= TIMES_NEARER * least]


def _with_equals(made: Made, views: Sequence[View]) -> Sequence[Sequence[Change]]:
    """Return of each change those that give the same in every one of these views."""
    alike = [one for one in _options(views[0].what) if one.field in made]
    alike = [one for one in alike if not any(view.apart({**made, one.field: one}) for view in views)]
    return [[one for one in alike if one.field == name] for name in made]


def said(found: Sequence[Sequence[Change]]) -> Iterator[str]:
    """Yield changes in words."""
    if found:
        yield f"whether it comes of {', and '.join(' or '.join(one.words for one in alike) for alike in found)}"
