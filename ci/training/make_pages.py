"""Makes the shipped pages anew: ``python -m ci.training.make_pages [FOLDER]``.

The generator's pages and those that another engine typesets, each as a PNG with its truth beside it, the list
of each subset, and a manifest of what they were made with. Without a folder, those in the package are written over.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from io import BytesIO
from pathlib import Path

from PIL import Image, features

from ci.training.generator import generate
from ci.training.page import Page
from ci.training.telling import tell
from ci.training.truth import TRUTH_SUFFIX, truth_of
from ci.training.typeset import SETTINGS, typeset
from pytest_dsocr.contract.presets import Grid
from pytest_dsocr.pages.page_list import PAGES

GENERATED_SEEDS = (0, 1, 2, 3, 4, 5, 9, 10, 11, 15, 16, 24, 30, 32, 33, 34, 36, 54, 86, 201)
"""Of held-out pages: two of each kind, with every grid of crops that is trained on among them."""
MANY_CROPS: Mapping[int, tuple[float, Grid]] = {1003: (0.6, (3, 3)), 1011: (0.4, (4, 2))}
"""Seeds of held-out pages with more than six crops, which no training sees: their levels and grids."""
QUICK_SEEDS = (16, 1011, 201)
"""Of all those, three of few words: with four crops, with eight and with none."""
PASSED_OVER = (3, 34)
"""Seeds of which ``dev-20`` has none, for it has a page of many crops of the same kind in the place of each."""
MANIFEST = "manifest.json"


def make_pages(folder: Path) -> Iterator[str]:
    """Write everything into ``folder``, and yield a line for each page."""
    names: dict[int, str] = {}
    for page in (made(seed) for seed in (*GENERATED_SEEDS, *MANY_CROPS)):
        names[page.seed] = f"generated/{page.kind.replace(' ', '_')}_{page.seed:03}.png"
        yield write_page(folder, names[page.seed], page)
    typeset_names = [f"typeset/{name}.png" for name in SETTINGS]
    for name, setting in zip(typeset_names, SETTINGS, strict=True):
        yield write_page(folder, name, typeset(setting))
    write_list(folder / "dev-3.txt", "Three quick pages of the generator.", [names[seed] for seed in QUICK_SEEDS])
    twenty = [name for seed, name in names.items() if seed not in PASSED_OVER]
    write_list(folder / "dev-20.txt", "The generator's pages: two of each kind.", twenty)
    write_list(folder / "typeset.txt", "Pages that another engine typeset.", typeset_names)
    write_list(folder / "all.txt", "The generator's pages and the typeset ones.", [*names.values(), *typeset_names])
    write_text(folder / MANIFEST, json.dumps({"made_with": versions()}, indent=1) + "\n")


def made(seed: int) -> Page:
    """Make the shipped page of a seed."""
    level, grid = MANY_CROPS.get(seed, (1.0, None))
    return generate(seed, level=level, grid=grid)


def versions() -> Mapping[str, str | None]:
    """Give the versions that pixels depend on: of the generator's pages the first two, of typeset ones the others."""
    return {
        "pillow": version("pillow"),
        "freetype2": features.version("freetype2"),
        "reportlab": version("reportlab"),
        "pypdfium2": version("pypdfium2"),
    }


def write_page(folder: Path, name: str, page: Page) -> str:
    """Write a page without loss, and its truth beside it; gives a line about it."""
    path, png = folder / name, min(map(_png, _lossless(page.image)), key=len)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png)
    truth = truth_of(page)
    blocks = ",\n".join(json.dumps(block, ensure_ascii=False) for block in truth.pop("blocks"))
    write_text(path.with_suffix(TRUTH_SUFFIX), f'{json.dumps(truth)[:-1]}, "blocks": [\n{blocks}\n]}}\n')
    words = sum(len(block.words) for block in page.blocks)
    return f"{name:<36}{len(page.blocks):>3} blocks{words:>4} words{len(png) / 1000:>7.1f} kB"


def write_list(path: Path, purpose: str, pages: Sequence[str]) -> None:
    """Write a list file."""
    write_text(path, "\n".join((f"# {purpose}", *pages)) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text with the same bytes on every system."""
    path.write_text(text, encoding="utf-8", newline="\n")


def _lossless(image: Image.Image) -> Iterator[Image.Image]:
    """Give the image in every mode that shows the same RGB."""
    for other in (image.convert("L"), image.quantize(256, dither=Image.Dither.NONE)):
        if other.convert("RGB").tobytes() == image.tobytes():
            yield other
    yield image


def _png(image: Image.Image) -> bytes:
    buffer = BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m ci.training.make_pages", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=PAGES, help="where to; the package if left out")
    raise SystemExit(tell(make_pages(parser.parse_args().folder)))
