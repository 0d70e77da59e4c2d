"""A page to try things on, drawn with Pillow's own font: title, two columns, a figure, a table."""

from __future__ import annotations

from PIL import Image, ImageDraw, ImageFont

TEXT = (
    "the page is cut into crops and each crop is read with the whole beside it so that small print is seen at its "
    "own size while the layout is seen at once and every block is named and boxed in thousandths of the page"
)


def demo_page(width: int = 1240, height: int = 1754) -> Image.Image:
    """Draw a page of ``width`` x ``height`` pixels, RGB; the same bytes for the same Pillow."""
    page = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(page)
    unit = min(width, height) // 40
    margin, gutter = 3 * unit, 2 * unit
    column = (width - 2 * margin - gutter) // 2
    draw.text((margin, margin), "Reading pages in crops", font=_font(2 * unit), fill="black")
    top = margin + 4 * unit
    bottom = height - 14 * unit
    for index, left in enumerate((margin, margin + column + gutter)):
        _paragraph(draw, (left, top, left + column, bottom), unit, start=7 * index)
    _figure(draw, (margin, bottom + unit, margin + column, height - margin), unit)
    _table(draw, (margin + column + gutter, bottom + unit, width - margin, height - margin), unit)
    return page


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(max(size, 8))


def _paragraph(draw: ImageDraw.ImageDraw, box: tuple[int, int, int, int], unit: int, start: int) -> None:
    left, y, right, bottom = box
    font, words, word = _font(unit), TEXT.split(), start
    while y + unit < bottom:
        x: float = left
        while True:
            text = words[word % len(words)] + " "
            length = draw.textlength(text, font=font)
            if x + length > right:
                break
            draw.text((x, y), text, font=font, fill="black")
            x, word = x + length, word + 1
        y += round(1.5 * unit)


def _figure(draw: ImageDraw.ImageDraw, box: tuple[int, int, int, int], unit: int) -> None:
    left, top, right, bottom = box
    draw.rectangle(box, outline="black", width=2)
    colours = ("#3b6fb6", "#d1495b", "#edae49", "#66a182")
    bar = (right - left) // len(colours)
    for index, colour in enumerate(colours):
        height = (bottom - top) * (index + 2) // (len(colours) + 2)
        x = left + index * bar
        draw.rectangle((x + unit, bottom - height, x + bar - unit // 2, bottom - 2), fill=colour)


def _table(draw: ImageDraw.ImageDraw, box: tuple[int, int, int, int], unit: int) -> None:
    left, top, right, bottom = box
    rows, columns = 4, 3
    for row in range(rows):
        for col in range(columns):
            cell = (
                left + (right - left) * col // columns,
                top + (bottom - top) * row // rows,
                left + (right - left) * (col + 1) // columns,
                top + (bottom - top) * (row + 1) // rows,
            )
            draw.rectangle(cell, outline="black", width=1)
            draw.text(
                (cell[0] + unit // 2, cell[1] + unit // 2), str(12 * row + 5 * col), font=_font(unit), fill="black"
            )
