"""How a subject makes its pixels: the vendor's recipe under the known mistakes that together give the subject's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.families import DEFAULT

from .asked import Asked, Drawn

if TYPE_CHECKING:
    from torch import Tensor

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
        from pytest_dsocr.contract.inputs import levels
        from pytest_dsocr.explain.catalogue.pixels import Recipe

        recipe = replace(Recipe(), **{name: one.value for name, one in made.items()})
        page, is_whole = recipe.opened(self.page), self.what == "images_ori"
        views = [recipe.view(page, self.preset)] if is_whole else recipe.crops(page, self.preset.grid(*page.size))
        if len(views) != len(self.actual) or views[0].size != tuple(self.actual.shape[2:]):
            return float("inf")
        apart = (recipe.levels(levels(views)).float() - self.actual).abs_()
        return 0.0 if apart.max() <= SAME else float(apart.mean())


@dataclass(frozen=True)
class Recipes:
    """Finds recipes: of a plain page first, and of another page only where that recipe is not its own as well."""

    asked: Asked
    drawn: Drawn
    _plain: dict[str, tuple[View, Made, bool]] = field(default_factory=dict)
    _found: dict[str, list[Made]] = field(default_factory=dict)

    def hints(self, what: str, page: Path, preset: Preset, otherwise: str) -> Iterator[str]:
        """Yield what makes a view differ from the vendor's, where that is known and the plain page does not refute it.

        Args:
            what: ``images_ori`` or ``images_crop``.
            page: a file.
            preset: in which it is seen.
            otherwise: what the page is there for: said where the plain page is explained, and this one is not.
        """
        view = View(what, page, preset, self._actual(what, page, preset))
        if found := self._found_of(view, otherwise):
            yield found

    def _found_of(self, view: View, otherwise: str) -> str:
        what = view.what
        plain, of_plain, is_explained = self._of_plain(what)
        if not is_explained:
            return said(_needed(view, of_plain))
        found = self._found.setdefault(what, [of_plain])
        if all(view.apart(made) for made in found):
            made = _sought(view, of_plain)
            if view.apart(made) or plain.apart(made):
                return otherwise
            found.append(made)
        return said(_with_equals(next(made for made in found if not view.apart(made)), (plain, view)))

    def _of_plain(self, what: str) -> tuple[View, Made, bool]:
        if what not in self._plain:
            name, preset = PLAIN[what]
            page = self.drawn(name)
            view = View(what, page, DEFAULT.preset(preset), self._actual(what, page, DEFAULT.preset(preset)))
            made = _sought(view, {})
            self._plain[what] = view, made, not view.apart(made)
        return self._plain[what]

    def _actual(self, what: str, page: Path, preset: Preset) -> Tensor:
        return self.asked.tensors(page, preset)[what].float().cpu()


def _options(what: str) -> Iterator[Change]:
    from pytest_dsocr.explain.catalogue.pixels import CHANGED

    for words, how in CHANGED.values():
        yield from (Change(name, value, words) for name, value in how.items() if name in CHANGES[what])


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


def _needed(view: View, made: Made) -> Mapping[str, Sequence[Change]]:
    """Return the changes without which the view is many times further away."""
    least = view.apart(made)
    return {name: [one] for name, one in made.items() if view.apart(_without(made, name)) >= TIMES_NEARER * least}


def _with_equals(made: Made, views: Sequence[View]) -> Mapping[str, Sequence[Change]]:
    """Return of each change those that give the same in every one of these views."""
    return {
        name: [
            one
            for one in _options(views[0].what)
            if one.field == name and not any(view.apart({**made, name: one}) for view in views)
        ]
        for name in made
    }


def said(found: Mapping[str, Sequence[Change]]) -> str:
    """Put changes into words."""
    ways = ", and ".join(" or ".join(one.words for one in alike) for alike in found.values())
    return ways and f"whether it comes of {ways}"
