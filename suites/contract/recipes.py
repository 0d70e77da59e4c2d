"""Search for the known mistakes that together turn the vendor's pixels into the subject's."""

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
"""Fields of a recipe that affect each kind of view."""
PLAIN = {"images_ori": ("portrait", "base"), "images_crop": ("landscape", "gundam")}
"""Drawn page and preset that show every mistake which affects all pages."""
SAME = 1e-5
"""Largest difference of equal pixels, which range from -1 to 1, in any dtype."""
TIMES_NEARER = 10
"""Factor by which a mistake must reduce the distance to be named, if an unknown difference remains."""


class Change(NamedTuple):
    """Change of the recipe by a known mistake."""

    field: str
    value: Any
    words: str


Made = Mapping[str, Change]
"""Recipe as its differences from the vendor's, by field."""


class View(NamedTuple):
    """Pixels ``[N, 3, V, V]`` that the subject made from a page."""

    what: str
    page: Path
    preset: Preset
    actual: Tensor

    def apart(self, made: Made) -> float:
        """Return the mean distance to the pixels of a recipe: 0 if equal, infinity if the shapes differ."""
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


@dataclass
class _Explained:
    """Recipe that explains views, and the alternatives to each of its changes."""

    made: Made
    alike: list[Change]
    """Alternatives that agree with every view so far, the recipe's own changes among them."""

    @classmethod
    def of(cls, made: Made, plain: View) -> _Explained:
        """Start with the changes that the plain page does not tell apart."""
        explained = cls(made, [one for one in _options(plain.what) if one.field in made])
        explained.hold_to(plain)
        return explained

    def hold_to(self, view: View) -> None:
        """Leave out the changes that do not explain this view as well."""
        self.alike = [one for one in self.alike if not view.apart({**self.made, one.field: one})]

    @property
    def by_field(self) -> Sequence[Sequence[Change]]:
        """The changes for each field of the recipe."""
        return [[one for one in self.alike if one.field == name] for name in self.made]


@dataclass
class _Found:
    """Recipes that the pages of a kind of view have shown."""

    plain: View
    recipes: list[_Explained]
    """Recipe of the plain page, then those of other pages; none if the plain page is not explained."""
    needed: Sequence[Sequence[Change]] | None
    """Changes that bring the plain page much nearer; None if a recipe explains it."""
    is_refuted: bool
    """Whether the whole search found no recipe for a page."""


@dataclass(frozen=True)
class Recipes:
    """Search for recipes: that of a plain page first, and another one only if it does not explain a page."""

    asked: Asked
    drawn: Drawn
    _found: dict[str, _Found] = field(default_factory=dict)
    """Results by the kind of view."""

    def hints(self, what: str, page: Path, preset: Preset, otherwise: str) -> Iterator[str]:
        """Yield the known mistakes that explain a view and agree with the plain page.

        Once the whole search was refuted on a page, another one is compared only with the recipes that were found,
        unless it shows something of its own.

        Args:
            what: ``images_ori`` or ``images_crop``.
            page: a file.
            preset: sizes of the view.
            otherwise: hint for this page, yielded if the plain page is right and this one is not explained.
        """
        view = self._view(what, page, preset)
        if what not in self._found:
            name, usual = PLAIN[what]
            first = self._view(what, self.drawn(name), sizes_of(usual, self.asked.family))
            made = _sought(first, {})
            needed = _needed(first, made) if first.apart(made) else None
            recipes = [_Explained.of(made, first)] if needed is None else []
            self._found[what] = _Found(first, recipes, needed, is_refuted=needed is not None)
        of = self._found[what]
        if of.needed is not None:
            yield from said(of.needed)
            return
        known = next((one for one in of.recipes if not view.apart(one.made)), None)
        if known is None and (otherwise or not of.is_refuted):
            known = self._another(of, view)
        if known is None:
            yield from [otherwise] * bool(otherwise and not of.recipes[0].made)
            return
        known.hold_to(view)
        yield from said(known.by_field)

    def _another(self, of: _Found, view: View) -> _Explained | None:
        """Search for a recipe of this view that explains the plain page too, and keep it."""
        made = _sought(view, of.recipes[0].made)
        if view.apart(made):
            of.is_refuted = True
            return None
        if of.plain.apart(made):
            return None
        of.recipes.append(_Explained.of(made, of.plain))
        return of.recipes[-1]

    def _view(self, what: str, page: Path, preset: Preset) -> View:
        return View(what, page, preset, self.asked.tensors(page, preset)[what].float().cpu())


@cache
def _options(what: str) -> Sequence[Change]:
    from pytest_dsocr.explain.catalogue.pixels import CHANGED

    every = (Change(name, value, row.words) for row in CHANGED.values() for name, value in row.how.items())
    return [one for one in every if one.field in CHANGES[what]]


def _without(made: Made, name: str) -> Made:
    return {key: one for key, one in made.items() if key != name}


def _sought(view: View, made: Made) -> Made:
    """Add or remove the best change, one at a time, until the view is equal or nothing brings it nearer."""
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
    """Return the changes without which the view is :data:`TIMES_NEARER` times as far away."""
    least = view.apart(made)
    return [[one] for name, one in made.items() if view.apart(_without(made, name)) >= TIMES_NEARER * least]


def said(found: Sequence[Sequence[Change]]) -> Iterator[str]:
    """Yield one hint that names the changes."""
    if found:
        yield f"whether the cause is {', and '.join(' or '.join(one.words for one in alike) for alike in found)}"
