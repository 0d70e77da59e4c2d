"""Relations between the figures that two sides cut out of a page."""

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from pytest_dsocr.contract.drawing import draw_boxes
from pytest_dsocr.contract.markup import Box, PixelBox, parse, to_pixels
from pytest_dsocr.describe.figure_edges import FIGURE_RULES, Size
from pytest_dsocr.describe.files import Figure, Figures, _tables, of_files
from pytest_dsocr.describe.simplest import simplest
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.reference_result import CORNER_PX, Artefact

FORM = DEEPSEEK_OCR.form
PAGE = Image.new("RGB", (1240, 1754), "white")
BOXES = (Box(0, 40, 633, 377), Box(215, 271, 1040, 481), Box(57, 90, 301, 1011), Box(11, 13, 917, 503))
"""Boxes of figures; two of them reach beyond the page."""


def _figures(size_of: Callable[[Box, PixelBox], Size]) -> Figures:
    """Return figures of which the subject's have other sizes."""
    made = {}
    for k, box in enumerate(BOXES):
        pixels = to_pixels(box, *PAGE.size)
        right = pixels.x2 - pixels.x1, pixels.y2 - pixels.y1
        made[f"images/{k}.jpg"] = Figure(box, pixels, Artefact(9, size_of(box, pixels)), Artefact(10, right))
    return Figures(made, PAGE)


def _said(figures: Figures) -> tuple[str, str]:
    own = {name: one.actual for name, one in figures.of.items()}
    other = {name: one.expected for name, one in figures.of.items()}
    found = simplest(of_files(own, other, figures))
    assert found is not None
    return found.kind, found.text


SAME_SIZES = {"later": "shorter", "earlier": "longer", "enclosing": "longer"}
"""Rules that give the sizes of simpler ones for these boxes."""


@pytest.mark.parametrize("kind", FIGURE_RULES)
def test_each_other_rule_for_edges_is_told_apart(kind: str) -> None:
    def size(box: Box, _: PixelBox) -> Size:
        x1, y1, x2, y2 = FIGURE_RULES[kind].cut(box, PAGE.size)
        return x2 - x1, y2 - y1

    found, text = _said(_figures(size))
    assert FIGURE_RULES[found].words in text
    assert found == SAME_SIZES.get(kind, kind)


def _only(box: Box, rule: Callable[[float], int], page_px: Size) -> tuple[str, str]:
    """Describe the only figure, with edges by a rule for their exact places."""
    pixels = to_pixels(box, *page_px)
    x1, y1, x2, y2 = (rule(value / 999 * side) for value, side in zip(box, page_px * 2, strict=True))
    right = pixels.x2 - pixels.x1, pixels.y2 - pixels.y1
    figure = Figure(box, pixels, Artefact(9, (x2 - x1, y2 - y1)), Artefact(10, right))
    return _said(Figures({"images/0.jpg": figure}, Image.new("RGB", page_px, "white")))


def test_edges_that_decide_are_counted() -> None:
    kind, text = _only(Box(100, 101, 779, 400), round, (533, 420))
    assert kind == "rounded"
    fact = "the only figure is 1 pixel wider: its box is rounded to pixels, not truncated; 1 of 4 edges differs by it"
    other = "and all fit as well if the right and lower edges are rounded to pixels, not truncated"
    assert text == f"{fact}, {other}"


def test_rules_that_no_edge_tells_apart_are_both_named() -> None:
    kind, text = _only(Box(215, 101, 301, 401), lambda value: int(value) if value < 150 else int(value) + 1, (533, 420))
    assert kind == "longer"
    assert "2 of 4 edges differ by it" in text
    assert FIGURE_RULES["enclosing"].words in text


@pytest.mark.parametrize(
    ("wider", "higher", "words"),
    [(2, 0, "2 pixels wider"), (0, -2, "2 pixels lower"), (3, -1, "3 pixels wider and 1 pixel lower")],
)
def test_figures_of_another_size_are_measured(wider: int, higher: int, words: str) -> None:
    grown = _figures(lambda _, pixels: (pixels.x2 - pixels.x1 + wider, pixels.y2 - pixels.y1 + higher))
    assert _said(grown) == ("grown", f"each figure is {words}")


def test_figures_of_the_drawn_page_are_told_of() -> None:
    spans = parse(f"<|ref|>image<|/ref|><|det|>[[{', '.join(f'{side:g}' for side in BOXES[2])}]]<|/det|>", FORM).spans
    drawn, pixels = draw_boxes(PAGE, spans), to_pixels(BOXES[2], *PAGE.size)
    for page, kind in ((drawn, "drawn"), (PAGE, "other-content")):
        corner = np.asarray(page.crop(pixels).convert("L"))[:CORNER_PX, :CORNER_PX]
        size, tables = (pixels.x2 - pixels.x1, pixels.y2 - pixels.y1), _tables(75)
        own = Artefact(9, size, corner=tuple(map(tuple, corner.tolist())), tables=tables)
        figure = Figure(BOXES[2], pixels, own, Artefact(10, size))
        found = next(of_files({"0": own}, {"0": own}, Figures({"0": figure}, PAGE, drawn)))
        assert found.kind == kind


def test_figures_of_any_size_have_an_anatomy() -> None:
    kind, text = _said(_figures(lambda box, _: (int(box.x1) * 7, int(box.y2) * 3)))
    assert kind == "anatomy"
    assert text.startswith("4 of 4 figures differ: images/0.jpg: 0 x 1131 px for 785 x 591 px, ")


@pytest.mark.parametrize(
    ("missing", "surplus", "words"),
    [
        (("0.jpg",), ("1.jpg",), "1 file under another name: 1.jpg for 0.jpg"),
        (("0.jpg", "1.jpg"), (), "2 of 3 files missing: 0.jpg, 1.jpg"),
        ((), ("x.txt",), "1 file more: x.txt"),
    ],
)
def test_other_names_are_listed(missing: tuple[str, ...], surplus: tuple[str, ...], words: str) -> None:
    shared, none = {"result.mmd": Artefact(3)}, Figures({}, PAGE)
    own, other = [{**shared, **dict.fromkeys(names, Artefact(1))} for names in (surplus, missing)]
    found = simplest(of_files(own, other, none))
    assert found is not None
    assert found.text == words
