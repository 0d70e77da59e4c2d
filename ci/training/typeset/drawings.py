"""Pictures without words for typeset pages: a bar chart, a landscape, discs. Lengths are in points."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from reportlab.graphics.shapes import Circle, Drawing, Line, Polygon, Rect
from reportlab.lib.colors import Color, HexColor

AXIS = HexColor("#303030")
Picture = Callable[[Random, float, float], Drawing]
"""What draws a picture of a width and a height."""
TINTS = ("#c0504d", "#4f81bd", "#9bbb59", "#8064a2", "#f79646", "#7f7f7f")


def bars(random: Random, width: float, height: float) -> Drawing:
    """Draw a bar chart: an axis to the left, one below, and four to seven bars of one colour."""
    drawing = Drawing(width, height)
    count = random.randint(4, 7)
    pitch, fill = width / count, HexColor(random.choice(TINTS))
    for bar in range(count):
        tall = height * random.randint(20, 95) / 100
        drawing.add(Rect((bar + 0.25) * pitch, 0, 0.6 * pitch, tall, fillColor=fill, strokeColor=None))
    drawing.add(Line(0, 0, width, 0, strokeColor=AXIS, strokeWidth=2))
    drawing.add(Line(0, 0, 0, height, strokeColor=AXIS, strokeWidth=2))
    return drawing


def landscape(random: Random, width: float, height: float) -> Drawing:
    """Draw a sky in bands, a sun and three ranges of hills."""
    drawing = Drawing(width, height)
    for band in range(16):
        sky = Color(0.45 + 0.02 * band, 0.6 + 0.01 * band, 0.85)
        drawing.add(_plain(Rect(0, height * (15 - band) / 16, width, height / 16), sky))
    sun = Circle(width * random.randint(20, 80) / 100, 0.75 * height, 0.12 * height)
    drawing.add(_plain(sun, HexColor("#f2c84b")))
    for hills in range(3):
        tops = [0.5 - 0.15 * hills + random.randint(-10, 10) / 100 for _ in range(6)]
        ridge = [side for at, top in enumerate(tops) for side in (width * at / 5, height * top)]
        drawing.add(_plain(Polygon([0, 0, *ridge, width, 0]), Color(0.35 - 0.1 * hills, 0.5 - 0.12 * hills, 0.3)))
    return drawing


def discs(random: Random, width: float, height: float) -> Drawing:
    """Draw overlapping discs on a framed ground."""
    drawing = Drawing(width, height)
    drawing.add(Rect(0, 0, width, height, fillColor=HexColor("#ece6d8"), strokeColor=AXIS, strokeWidth=2))
    for _ in range(random.randint(4, 6)):
        radius = height * random.randint(10, 25) / 100
        x = random.randint(round(radius), round(width - radius))
        y = random.randint(round(radius), round(height - radius))
        drawing.add(_plain(Circle(x, y, radius), HexColor(random.choice(TINTS))))
    return drawing


def _plain(shape: Rect | Circle | Polygon, fill: Color) -> Rect | Circle | Polygon:
    shape.fillColor, shape.strokeColor = fill, None
    return shape
