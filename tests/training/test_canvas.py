"""Ink on a canvas: where it says that it is, and all of it under the same tilt."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from ci.training.canvas import Canvas
from ci.training.page import Rect
from ci.training.typography import Style, break_lines, stamp

BLACK = (0, 0, 0)
STYLE = Style(em_px=40, pitch_px=60, ink=BLACK)


def canvas(tilt_degrees: float = 0.0) -> Canvas:
    return Canvas(Image.new("RGB", (1200, 600), (255, 255, 255)), 1000, 500, tilt_degrees)


def slope(drawn: Canvas) -> float:
    """Fit a line through the ink: how many pixels it falls in each to the right."""
    ys, xs = np.nonzero(np.asarray(drawn.image.convert("L")) < 128)
    return float(np.polyfit(xs, ys, 1)[0])


@pytest.mark.parametrize("tilt_degrees", [-0.7, 0.0, 0.7])
@pytest.mark.parametrize("what", ["many words", "one word", "a rule", "a picture"])
def test_all_ink_has_the_pages_tilt(what: str, tilt_degrees: float) -> None:
    drawn = canvas(tilt_degrees)
    if what == "many words":
        for x_px in range(100, 900, 40):
            drawn.write("-", x_px, 250, STYLE)
    elif what == "one word":
        drawn.write("-" * 40, 200, 250, STYLE)
    elif what == "a rule":
        drawn.fill(Rect(100, 250, 900, 254), BLACK)
    else:
        drawn.place(Image.new("RGB", (80, 8)), Rect(100, 250, 900, 280))
    assert slope(drawn) == pytest.approx(-math.tan(math.radians(tilt_degrees)), abs=0.001)


BOLD, SLANTED, SPACED, NARROW = (
    replace(STYLE, bold=True),
    replace(STYLE, slant=True),
    replace(STYLE, tracking=0.1),
    replace(STYLE, width=0.8),
)


@pytest.mark.parametrize("tilt_degrees", [0.0, 0.5])
@pytest.mark.parametrize("style", [STYLE, BOLD, SLANTED, SPACED, NARROW])
def test_a_words_rect_is_its_ink(style: Style, tilt_degrees: float) -> None:
    drawn = canvas(tilt_degrees)
    word = drawn.write("jungle,", 500, 250, style)
    ys, xs = np.nonzero(np.asarray(drawn.image.convert("L")) < 255)
    assert word.rect == (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
    assert word.text == "jungle,"


@pytest.mark.parametrize(
    ("style", "wider", "inkier"), [(BOLD, 1.05, 1.4), (SPACED, 1.2, 1.0), (NARROW, 0.8, 0.8), (SLANTED, 1.0, 1.0)]
)
def test_faces_are_made_from_the_one_font(style: Style, wider: float, inkier: float) -> None:
    plain, made = (stamp("velvet", face, 1, 1, 0.0) for face in (STYLE, style))
    assert made.mask.tobytes() != plain.mask.tobytes()
    assert made.advance_px / plain.advance_px == pytest.approx(wider, abs=0.06)
    assert np.asarray(made.mask, float).sum() / np.asarray(plain.mask, float).sum() == pytest.approx(inkier, abs=0.12)


@pytest.mark.parametrize(
    ("words", "width_px", "counts"),
    [
        ("", 10, []),
        ("a", 10, [1]),
        ("aaa bbb", 7, [2]),
        ("aaa bbb", 6.9, [1, 1]),
        ("a longest b", 3, [1, 1, 1]),
        ("a b c d e", 3, [2, 2, 1]),
    ],
)
def test_lines_are_as_full_as_they_can_be(words: str, width_px: float, counts: list[int]) -> None:
    assert break_lines(words.split(), width_px, measure=len, space_px=1) == counts
