"""A page twice, with the boxes of the reference and of the subject, to be looked at."""

from __future__ import annotations

from PIL import Image, ImageDraw, ImageFont, ImageOps

from pytest_dsocr.contract.markup import parse
from pytest_dsocr.contract.overlay import draw_boxes
from pytest_dsocr.observation import Output

LARGEST_PX = (900, 1200)
MARGIN_PX, HEAD_PX, FONT_PX = 12, 30, 16
PAPER, INK = (236, 236, 236), (32, 32, 32)


def side_by_side(page: Image.Image, reference: Output, subject: Output, verdict: str) -> Image.Image:
    """Draw ``page`` as the reference read it, then as the subject did, each under its name and count of boxes."""
    sides = {f"reference: {_boxes(reference)}": reference, f"subject: {_boxes(subject)} ({verdict})": subject}
    drawn = [ImageOps.contain(draw_boxes(page, parse(output.text).spans), LARGEST_PX) for output in sides.values()]
    width, height = drawn[0].size
    sheet = Image.new("RGB", (2 * width + 3 * MARGIN_PX, height + HEAD_PX + MARGIN_PX), PAPER)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(FONT_PX)
    for k, (title, picture) in enumerate(zip(sides, drawn, strict=True)):
        left = MARGIN_PX + k * (width + MARGIN_PX)
        pen.text((left, (HEAD_PX - FONT_PX) // 2), title, INK, font)
        sheet.paste(picture, (left, HEAD_PX))
    return sheet


def _boxes(output: Output) -> str:
    return f"{sum(len(span.boxes) for span in output.spans)} boxes"
