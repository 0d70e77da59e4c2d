"""The calibration as a picture: a column for each seam, a mark for each variant, and its limits as lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from pytest_dsocr.compare.tolerances import Tolerances

COLUMN_PX, TOP_PX, LEFT_PX, RIGHT_PX, DECADE_PX, FONT_PX = 160, 60, 70, 30, 90, 11
HIGHEST = 0
"""A power of ten; an error of zero is not drawn."""
SEAMS = {"layers": "prefill/0", "logits": "prefill"}
"""A seam that has the limit of a column that is none."""
TITLE = "{}: largest relative error; green: correct, red: a small mistake, by its id in faults.md"
LINES = "above the line: WRONG{}"
GREEN, RED, GREY = "#1a7f37", "#cf222e", "#8c959f"
Rows = Sequence[Mapping[str, Any]]


def picture(setting: str, limits: Tolerances, rows: Rows) -> str:
    """Draw the variants, ``name``, ``correct`` and ``errors`` by seam, as an SVG, with ``limits``."""
    drawn = [error for row in rows for error in row["errors"].values() if error]
    seams = [seam for seam in rows[0]["errors"] if any(row["errors"][seam] for row in rows)]
    lowest = math.floor(math.log10(min(drawn)))
    width = LEFT_PX + COLUMN_PX * len(seams) + RIGHT_PX
    height = TOP_PX + DECADE_PX * (HIGHEST - lowest) + 60
    also = "" if math.isinf(limits.usual) else f"; above {limits.usual:.0e}: SUSPICIOUS"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
            f'font-size="{FONT_PX}"><rect width="100%" height="100%" fill="white"/>',
            _text(LEFT_PX, 16, TITLE.format(setting)),
            _text(LEFT_PX, 32, LINES.format(also), GREY),
            *(_text(10, _y(10.0**power) + 4, f"1e{power:+03d}", GREY) for power in range(lowest, HIGHEST + 1)),
            *(mark for k, seam in enumerate(seams) for mark in _column(k, seam, rows, limits)),
            *(_text(LEFT_PX + COLUMN_PX * k, height - 8, seam) for k, seam in enumerate(seams)),
            "</svg>\n",
        ]
    )


def _column(k: int, seam: str, rows: Rows, limits: Tolerances) -> Iterator[str]:
    x, free_from = LEFT_PX + COLUMN_PX * k, 0
    limit = limits.of_seam(SEAMS.get(seam, seam))
    for value in {limit, limits.usual} - {math.inf}:
        y = _y(value)
        yield f'<path d="M{x} {y}h{COLUMN_PX - 10}" stroke="{GREY}" stroke-dasharray="{4 if value == limit else 1}"/>'
        yield _text(x + COLUMN_PX - 40, y - 3, f"{value:.0e}", GREY)
    for row in sorted(rows, key=lambda one: -one["errors"][seam]):
        if (error := row["errors"][seam]) == 0.0:
            continue
        colour, y = GREEN if row["correct"] else RED, _y(error)
        beside = max(y, free_from)
        free_from = beside + FONT_PX
        yield f'<circle cx="{x + 6}" cy="{y}" r="3" fill="{colour}"/>'
        yield f'<line x1="{x + 6}" x2="{x + 17}" y1="{y}" y2="{beside}" stroke="{colour}"/>'
        yield _text(x + 18, beside + 4, row["name"], colour)


def _y(error: float) -> int:
    return TOP_PX + round((HIGHEST - min(HIGHEST, math.log10(error))) * DECADE_PX)


def _text(x: int, y: int, text: str, colour: str = "black") -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}">{escape(text)}</text>'
