"""What each shipped page shows that others may not: ``python -m tests.pages.classes`` writes docs/pages.md.

A class of mistakes is shown by a page that has what the mistake is about. It is read off the page's file, its grid and
what the vendor's code was recorded to do with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

from PIL import Image

from pytest_dsocr.contract.grid import CROP_PX, Grid, candidates, crop_grid
from pytest_dsocr.contract.resampling import resampling
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.names import MINI
from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.pages.shipped import shipped
from pytest_dsocr.reference.opening import Wanted
from tests.checkout import CHECKOUT
from tests.recordings import FOLDER, find_recording

PAGE = CHECKOUT / "docs" / "pages.md"
MANY_CROPS, MANY_POSITIONS, EOS = 6, 1024, 1


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
        return crop_grid(*self.size_px)

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
        lambda page: min(page.size_px) < CROP_PX and prod(page.grid) > 1,
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

BESIDE: Mapping[str, str] = {
    "alpha, CMYK, 16 bit, one bit": "suites/contract/test_loading.py",
    "JPEG, GIF, a palette with transparency": "suites/contract/test_same_pixels.py",
    "every EXIF orientation, a file of several frames": "suites/contract/test_file_forms.py",
    "every grid, ties of grids, pages near 640 px": "suites/contract/test_crop_grid.py",
    "an n-gram repeated more than 90 tokens back, and one that ends in a table's tag": "suites/cache/test_reading.py",
    "an output that ends at its ceiling of tokens": "suites/cache/test_reading.py",
    "characters of several tokens, LaTeX in a text": "suites/contract/test_tokens_to_text.py",
    "LaTeX rewritten, malformed markup, several boxes, boxes beyond the page": "suites/contract/test_output.py",
    "pixels whose sum is zero": "suites/contract/test_zero_sum.py",
    "pixels of views of 512 and 1280 px, at which nothing holds SAM itself": "suites/contract/test_global_view.py",
    "two pages together, pages of unlike lengths together": "suites/cache/test_batches.py",
    "more than ten experts, equal and nearly equal best tokens, pad in the middle, a prompt that comes again, over "
    "2,048 positions, values so small that an epsilon counts, bfloat16": "suites/checkpoint/made.py",
    "sizes that no preset of the model's card has": "suites/contract/test_own_presets.py",
}
"""What no shipped page has: where a default run asks for it."""


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


def table() -> str:
    """Give the page of the documentation."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from HEAD.splitlines()
    for name, (shows, _) in CLASSES.items():
        quick, twenty, every = (having(name, subset) for subset in ("dev-3", "dev-20", "all"))
        told = ", ".join(f"`{one}`" for one in quick) or "-"
        yield f"| {name} | {shows} | {told} | {len(twenty)} | {len(every)} |"
    yield from (
        "",
        "What no shipped page has, and which test of a default run asks for it:",
        "",
        "| | asked by |",
        "| --- | --- |",
    )
    yield from (f"| {what} | `{test}` |" for what, test in BESIDE.items())


HEAD = """# What each page shows

Written by `python -m tests.pages.classes`. A page shows a class of mistakes where it has what the mistake is
about: the columns name the pages of `dev-3` that do, and how many of `dev-20` and of all shipped pages.

| a page with | shows | `dev-3` | `dev-20` | `all` |
| --- | --- | --- | --- | --- |"""


if __name__ == "__main__":
    write_whole(PAGE, table().encode())
    sys.stdout.write(f"{PAGE}\n")
