"""The calibration as a picture: a column for each seam, a mark for each variant, and the limits as lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from pytest_dsocr.compare.tolerances import BY_DTYPE, OF_ONE_KEY

COLUMN_PX, TOP_PX, LEFT_PX, RIGHT_PX, DECADE_PX, FONT_PX = 150, 40, 70, 180, 60, 11
LOWEST, HIGHEST = -8, -1
"""Powers of ten; an error of zero stands at the foot."""
TITLE = "float32 on a CPU, mini: largest relative error; green: correct, red: a small mistake, by its id in faults.md"
GREEN, RED, GREY = "#1a7f37", "#cf222e", "#8c959f"


def picture(rows: Sequence[Mapping[str, Any]]) -> str:
    """Draw the variants, ``name``, ``correct`` and ``errors`` by seam, as an SVG."""
    seams = list(rows[0]["errors"])
    width, height = LEFT_PX + COLUMN_PX * len(seams) + RIGHT_PX, TOP_PX + DECADE_PX * (HIGHEST - LOWEST) + 30
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
            f'font-size="{FONT_PX}"><rect width="100%" height="100%" fill="white"/>',
            _text(LEFT_PX, 16, TITLE),
            *_scale(width - RIGHT_PX),
            *(mark for k, seam in enumerate(seams) for mark in _column(k, seam, rows)),
            "</svg>\n",
        ]
    )


def _scale(right: int) -> Iterator[str]:
    for power in range(LOWEST, HIGHEST + 1):
        yield _text(10, _y(10.0**power) + 4, f"1e{power:+03d}", GREY)
    limits = BY_DTYPE["float32"].but(OF_ONE_KEY["float32"])
    for error, name in ((limits.seam, "limit: WRONG above"), (limits.usual, "SUSPICIOUS above")):
        y = _y(error)
        yield f'<line x1="{LEFT_PX}" x2="{right}" y1="{y}" y2="{y}" stroke="{GREY}" stroke-dasharray="4"/>'
        yield _text(right + 4, y + 4, f"{name} {error:.0e}", GREY)


def _column(k: int, seam: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    x, taken = LEFT_PX + COLUMN_PX * k, set[int]()
    yield _text(x, _y(0.0) + 24, seam)
    for row in sorted(rows, key=lambda one: -one["errors"][seam]):
        error, colour = row["errors"][seam], GREEN if row["correct"] else RED
        if error == 0.0:
            continue
        y = _y(error)
        beside = y
        while any(abs(beside - other) < FONT_PX for other in taken):
            beside += 1
        taken.add(beside)
        yield f'<circle cx="{x + 6}" cy="{y}" r="3" fill="{colour}"/>'
        yield f'<line x1="{x + 6}" x2="{x + 17}" y1="{y}" y2="{beside}" stroke="{colour}"/>'
        yield _text(x + 18, beside + 4, row["name"], colour)


def _y(error: float) -> int:
    power = max(LOWEST, min(HIGHEST, math.log10(error))) if error else LOWEST
    return TOP_PX + round((HIGHEST - power) * DECADE_PX)


def _text(x: int, y: int, text: str, colour: str = "black") -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}">{escape(text)}</text>'
