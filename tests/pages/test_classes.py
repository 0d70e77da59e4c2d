"""What each shipped page shows that others may not: the quick pages leave out only what is slow.

A class of mistakes is shown by a page that has what the mistake is about. It is read off the page's file, its grid and
what the vendor's code was recorded to do with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

from PIL import Image

from pytest_dsocr.contract.image import resampling
from pytest_dsocr.contract.presets import Grid, candidates, crop_grid
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.opening import Wanted
from tests.recordings import FOLDER, find_recording

MANY_CROPS, MANY_POSITIONS, EOS = 6, 1024, 1
NOT_QUICK = {
    "a side shorter than a crop",
    "more than 200 tokens",
    "a palette or grey file",
    "a span of several boxes",
    "a best token that is forbidden",
}
"""What a page of the quick ones would be slow for, or what a suite beside them asks for."""


@dataclass(frozen=True)
class Shown:
    """A shipped page, and what was recorded of it."""

    path: Path
    seen: Observation

    @property
    def size_px(self) -> tuple[int, int]:
        """Width and height."""
        with Image.open(self.path) as image:
            return image.size

    @property
    def grid(self) -> Grid:
        """Columns and rows of crops."""
        return crop_grid(*self.size_px, DEFAULT.tiling)

    @property
    def mode(self) -> str:
        """What the file holds, in Pillow's words."""
        with Image.open(self.path) as image:
            return image.mode

    @property
    def positions(self) -> int:
        """Tokens of the prompt and of the output."""
        return len(self.seen.inputs.prompt_ids) + len(self.seen.token_ids)

    @property
    def labels(self) -> set[str]:
        """Of the spans that are read."""
        return {span.label for span in self.seen.output.spans}

    @property
    def near(self) -> list[Grid]:
        """The grids whose shape is as near to the page's as that of its own."""
        columns, rows = self.grid
        return [one for one in candidates(9) if one[0] * rows == one[1] * columns]


CLASSES: Mapping[str, tuple[str, Callable[[Shown], bool]]] = {
    "no crops": ("crops of a page that fits into one", lambda page: page.grid == (1, 1)),
    "two to six crops": ("order, size, filter and layout of crops", lambda page: 1 < prod(page.grid) <= MANY_CROPS),
    "more than six crops": (
        "a limit of six, as the vendor's code for vLLM has",
        lambda page: prod(page.grid) > MANY_CROPS,
    ),
    "more columns than rows, or the reverse": ("columns and rows exchanged", lambda page: page.grid[0] != page.grid[1]),
    "the smaller of grids equally near": (
        "the last one taken",
        lambda page: page.grid == page.near[0] != page.near[-1],
    ),
    "the larger of grids equally near": (
        "the first one taken",
        lambda page: prod(page.grid) > 1 and page.grid != page.near[0],
    ),
    "bars at the sides": ("the page put at the left of its view", lambda page: page.size_px[0] < page.size_px[1]),
    "bars above and below": ("the page put at the top of its view", lambda page: page.size_px[0] > page.size_px[1]),
    "a side shorter than a crop": (
        "a crop that is enlarged",
        lambda page: min(page.size_px) < DEFAULT.tiling.crop_px and prod(page.grid) > 1,
    ),
    "more than 1,024 positions": ("ceilings and tables of 1,024", lambda page: page.positions > MANY_POSITIONS),
    "more than 200 tokens": ("caches that are kept short", lambda page: len(page.seen.token_ids) > 200),
    "a palette or grey file": ("files taken for RGB", lambda page: page.mode != "RGB"),
    "figures": ("links, cuts and numbers of figures", lambda page: "image" in page.labels),
    "tables": ("the table's tags", lambda page: "table" in page.labels),
    "a span of several boxes": (
        "the first box alone",
        lambda page: any(len(one.boxes) > 1 for one in page.seen.output.spans),
    ),
    "the end at EOS": ("an end elsewhere", lambda page: page.seen.token_ids[-1] == EOS),
    "a best token that is forbidden": (
        "the rule for n-grams left out",
        lambda page: any(one.token != one.best.ids[0] for one in page.seen.steps),
    ),
}
"""By what a page has: the mistakes that it shows, and whether a page has it."""


@cache
def pages(subset: str) -> tuple[Shown, ...]:
    """Give a subset's pages with what was recorded of them."""
    recorded = find_recording(FOLDER, Wanted(resolve(MINI)).key, resampling()).cases
    return tuple(
        Shown(path, recorded[make_case(path, "markdown", "gundam").id].observation) for path in shipped(subset)
    )


def having(name: str, subset: str) -> list[str]:
    """Name a subset's pages that have something."""
    return [page.path.stem for page in pages(subset) if CLASSES[name][1](page)]


def test_the_quick_pages_show_all_that_is_not_slow() -> None:
    assert {name for name in CLASSES if not having(name, "dev-3")} == NOT_QUICK


def test_none_of_the_quick_pages_is_idle() -> None:
    alone = [pages[0] for name in CLASSES if len(pages := having(name, "dev-3")) == 1]
    assert {*alone} == {"invoice_016", "slide_1011", "figures_201"}
