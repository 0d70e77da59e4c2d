"""Files that a subject writes for given outputs, compared with those of the vendor's code.

The outputs are rare ones: malformed markup, figures of several boxes, LaTeX, boxes beyond the page. No model runs.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL import ExifTags, Image, ImageDraw

from pytest_dsocr.compare.verdict import Comparison, Reason, as_expected, not_compared
from pytest_dsocr.contract.drawing import place
from pytest_dsocr.contract.markup import IMAGE_LABEL, parse
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.plugin.config import own_config

from .asked import Drawn, recorded

PAGE_SIZE_PX = (1000, 1400)
"""Size of the white page of all recorded outputs."""


@cache
def recorded_outputs(family: ModelSpec) -> Mapping[str, Mapping[str, Any]]:
    """Return each output of a page by its name: its text, and of its files the Markdown and the figures' sizes.

    ``geo.jpg``, which the vendor's matplotlib draws, is left out.
    """
    cases: dict[str, Any] = json.loads(recorded("postprocess.json", family).read_text(encoding="utf-8"))["cases"]
    return {name: case for name, case in cases.items() if "pages" not in case}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Test the recorded outputs of the checkpoint's model."""
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", recorded_outputs(family_named(own_config(metafunc.config).checkpoint)))


MMD, FIGURES = "result.mmd", "artefacts/figures"
ROTATED_BY_EXIF = 6
COLOUR, AS_DRAWN = (240, 150, 40), "as drawn"
ORDERS = {(0, 1, 2): AS_DRAWN, (2, 1, 0): "red and blue exchanged"}
CLOSE = 8
"""Largest change of a level by JPEG compression."""
AROUND_PX = 16
"""Width of a JPEG block."""
Write = Callable[[str, Path], Path]


@pytest.fixture
def write(dsocr_subject: Any, family: ModelSpec, tmp_path: Path) -> Write | None:
    """Return a function that writes an output's files with the subject; None if it offers no ``write``."""
    from pytest_dsocr.subjects.checked import CheckedSubject

    asked = CheckedSubject(dsocr_subject)

    def into_folder(text: str, page: Path) -> Path:
        asked.write(text, page, tmp_path, family.form.result_file)
        return tmp_path

    return into_folder if asked.writes else None


def test_the_files_are_the_vendors(
    name: str, family: ModelSpec, write: Write | None, drawn: Drawn, dsocr_check: Check
) -> None:
    if write is None:
        dsocr_check([not_compared(what, Reason.NOT_OFFERED) for what in (MMD, FIGURES)])
        return
    known = recorded_outputs(family)[name]
    dsocr_check(_compared(write(known["text"], drawn.blank(*PAGE_SIZE_PX)), known, family))


@pytest.mark.parametrize("kind", ["upright", "rotated by its EXIF orientation"])
def test_figures_are_cut_from_the_upright_page_without_its_boxes(
    kind: str, family: ModelSpec, write: Write | None, tmp_path: Path, dsocr_check: Check
) -> None:
    if write is None:
        dsocr_check([not_compared(what, Reason.NOT_OFFERED) for what in (MMD, FIGURES)])
        return
    known, page = recorded_outputs(family)["a page"], tmp_path / "page.png"
    _save_figures(page, known["text"], family, rotated=kind != "upright")
    folder = write(known["text"], page)
    seen = {name: _seen(folder / name) for name in _figures(folder)}
    why = "because figures are cut from the page in its colours, before boxes are drawn on it"
    colours = as_expected("artefacts/colours", seen, dict.fromkeys(_figures_of(known), AS_DRAWN), why)
    overlay = as_expected("artefacts/overlay", _size_px(folder / "result_with_boxes.jpg"), PAGE_SIZE_PX, "upright page")
    dsocr_check([*_compared(folder, known, family), colours, overlay])


def _figures_of(known: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return name and size in pixels of each figure that was recorded."""
    return {f"images/{name}": tuple(size) for name, size in known["figures"].items()}


def _compared(folder: Path, known: Mapping[str, Any], family: ModelSpec) -> list[Comparison]:
    from pytest_dsocr.compare.text import compare_content

    mmd = (folder / family.form.result_file).read_bytes().decode()
    return [
        compare_content(MMD, mmd, known["mmd"], 0.0),
        as_expected(FIGURES, _figures(folder), _figures_of(known), "the vendor's figures, with sizes in pixels"),
    ]


def _figures(folder: Path) -> Mapping[str, tuple[int, int]]:
    return {f"images/{path.name}": _size_px(path) for path in sorted((folder / "images").glob("*.jpg"))}


def _size_px(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.size


def _seen(path: Path) -> str:
    """Return how a figure's pixels compare with the colour in which it was drawn."""
    import numpy as np

    with Image.open(path) as image:
        levels = np.asarray(image.convert("RGB")).astype(int)
    for order, words in ORDERS.items():
        if abs(levels - [COLOUR[one] for one in order]).max() <= CLOSE:
            return words
    return "other colours"


def _save_figures(path: Path, text: str, family: ModelSpec, *, rotated: bool) -> None:
    """Write a black page with coloured rectangles slightly larger than the text's figures."""
    exif, page = Image.Exif(), Image.new("RGB", PAGE_SIZE_PX)
    for region in place([span for span in parse(text, family.form).spans if span.label == IMAGE_LABEL], *PAGE_SIZE_PX):
        x1, y1, x2, y2 = region.pixels
        ImageDraw.Draw(page).rectangle((x1 - AROUND_PX, y1 - AROUND_PX, x2 + AROUND_PX, y2 + AROUND_PX), COLOUR)
    if rotated:
        exif[ExifTags.Base.Orientation] = ROTATED_BY_EXIF
        page = page.transpose(Image.Transpose.ROTATE_90)
    page.save(path, exif=exif)
