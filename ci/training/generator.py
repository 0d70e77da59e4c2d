"""Pages from a seed, in the kinds that are shipped: the truth is known, and a seed always draws the same bytes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from random import Random

from PIL import Image, ImageDraw

from ci.training.canvas import Align, Canvas, Colour
from ci.training.column import Column
from ci.training.page import Block, Page, Rect
from ci.training.sheet import ACCENTS, GAP_PX, GUTTER_PX, Drafts, Sheet, Writer
from pytest_dsocr.contract.presets import Grid, Tiling, crop_count, crop_grid

TILING = Tiling(crop_px=640, least=2, most=9, squashed_up_to_px=640)
"""Pages are drawn for crops of this size: text is as large on the crops of other models as their crops are."""
GRIDS: dict[Grid, float] = {(2, 3): 50, (3, 2): 15, (2, 2): 10, (1, 2): 10, (1, 3): 8, (2, 1): 4, (1, 1): 3}
"""Share of each grid among pages, in percent."""
TALL, WIDE = ((1, 2), (1, 3), (2, 3)), ((2, 2), (3, 2), (2, 1))
LEAST_BLOCKS, MOST_BLOCKS = 2, 14
PAD_PX = 4
"""Between the ink of a block and its box."""
PALE_INK: Colour = (205, 205, 205)


def generate(seed: int, words: Sequence[str], grid: Grid, size: tuple[int, int] | None = None) -> Page:
    """Draw the page of ``seed`` for crops in ``grid``, of ``words`` in lower case; its size in pixels may be given."""
    rng = Random(f"page {seed}")
    while True:
        page = _page(rng, words, grid, size or size_of(rng, grid))
        if len(page.blocks) >= LEAST_BLOCKS:
            return page


def grid_of(seed: int) -> Grid:
    """Choose a grid by the shares."""
    return Random(f"grid {seed}").choices([*GRIDS], [*GRIDS.values()])[0]


def _page(rng: Random, words: Sequence[str], grid: Grid, size: tuple[int, int]) -> Page:
    shares = {kind: share for kind, (_, share, grids) in KINDS.items() if grid in grids}
    kind = rng.choices([*shares], [*shares.values()])[0]
    whole = grid[0] * TILING.crop_px, grid[1] * TILING.crop_px
    tilt_degrees = rng.randint(-7, 7) / 10 if rng.random() < 0.36 else 0.0
    image = _paper(rng, size)
    canvas = Canvas(image, *(whole if crop_count(grid) else size), tilt_degrees)
    budget = rng.triangular(40, 105, 90) * min(1, 0.3 + 0.14 * crop_count(grid))
    sheet = Sheet(canvas, rng, Writer(rng, words, round(budget)))
    drafts = [*islice(filter(None, KINDS[kind][0](sheet)), MOST_BLOCKS)]
    draw = ImageDraw.Draw(image)
    for _ in range(rng.choice((0, 0, 0, 60, 200))):
        grey = rng.randint(170, 225)
        draw.point((rng.randrange(image.width), rng.randrange(image.height)), fill=(grey, grey, grey))
    blocks = (
        Block(one.label, tuple(_padded(inks, canvas) for inks in one.inks), one.text, one.words) for one in drafts
    )
    return Page(kind, image, tuple(blocks))


def size_of(rng: Random, grid: Grid) -> tuple[int, int]:
    """Draw the size in pixels of a page that is cut into ``grid``."""
    px = TILING.crop_px
    while True:
        if not crop_count(grid):
            return rng.randint(480, px), rng.randint(480, px)
        stretch, aspect = rng.triangular(0.8, 1.24, 1.15), rng.uniform(0.96, 1.04)
        size = round(grid[0] * px / stretch * aspect), round(grid[1] * px / stretch / aspect)
        if crop_grid(*size, TILING) == grid:
            return size


def _paper(rng: Random, size: tuple[int, int]) -> Image.Image:
    """Make an empty page, white or tinted, now and then darker at one edge."""
    tint = rng.randint(240, 255), rng.randint(240, 255), rng.randint(234, 255)
    light: Colour = rng.choice((tint, tint, (255, 255, 255)))
    if rng.random() < 0.7:
        return Image.new("RGB", size, light)
    shades = range(rng.randint(3, 9))
    ramp = Image.new("RGB", (len(shades), 1))
    ramp.putdata([(light[0] - shade, light[1] - shade, light[2] - shade) for shade in shades])
    turned = ramp.transpose(rng.choice((Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.ROTATE_90)))
    return turned.resize(size, Image.Resampling.NEAREST)


def _padded(inks: Iterable[Rect], canvas: Canvas) -> Rect:
    lefts, tops, rights, bottoms = zip(*inks, strict=True)
    x, y = PAD_PX * canvas.scale_x, PAD_PX * canvas.scale_y
    width, height = canvas.image.size
    return Rect(
        max(min(lefts) - x, 0), max(min(tops) - y, 0), min(max(rights) + x, width), min(max(bottoms) + y, height)
    )


def _article(sheet: Sheet) -> Drafts:
    yield from sheet.header()
    column = sheet.column()
    yield sheet.heading(column)
    yield from _body(sheet, column)
    yield from sheet.footer()


def _two_columns(sheet: Sheet) -> Drafts:
    """Write two columns; one paragraph may begin in the first and end in the second."""
    yield from sheet.header()
    column, writer, rng = sheet.column(), sheet.writer, sheet.rng
    yield sheet.heading(column)
    first, second = column.split(2, GUTTER_PX)
    spared = writer.left // 2
    writer.left -= spared
    yield from _body(sheet, first)
    writer.left += spared
    first.bottom = min(first.bottom, first.top + rng.randint(1, 3) * sheet.body.pitch_px)
    words = writer.sentence(6) + writer.sentence(6)
    across = first.run_on(words, sheet.body, second, sheet.align) if rng.random() < 0.9 else None
    yield sheet.spaced(second, across) if across else None
    yield from _body(sheet, second)
    yield from sheet.footer()


def _body(sheet: Sheet, column: Column) -> Drafts:
    number = sheet.rng.randint(1, 9)
    while sheet.writer.left > 0 and column.room > 2 * sheet.body.pitch_px:
        if sheet.rng.random() < 0.25:
            yield sheet.sub_heading(column)
        part = sheet.rng.choices(("text", "equation", "figure", "beside", "table"), (58, 20, 9, 8, 5))[0]
        if part == "text":
            yield sheet.paragraph(column)
        elif part == "equation":
            yield sheet.formula(column)
        elif part == "beside" and column.width > 640:
            yield from sheet.beside(column)
            sheet.spaced(column, None)
        else:
            yield from (sheet.tabulation if part == "table" else sheet.figure)(column, number)
            sheet.spaced(column, None)
            number += 1


def _letter(sheet: Sheet) -> Drafts:
    column, writer, rng = sheet.column(), sheet.writer, sheet.rng
    if rng.random() < 0.5:
        yield sheet.heading(column, most=2)
    yield sheet.spaced(column, column.lines("text", writer.address(), sheet.body))
    side: Align = rng.choice(("left", "right"))
    yield sheet.spaced(column, column.text("text", ["Date:", *writer.date()], sheet.body, side))
    greeting = ["Dear", *writer.names(0, 1), writer.words(1)[0].capitalize() + ","]
    yield sheet.spaced(column, column.text("text", greeting, sheet.body))
    while writer.left > 0 and column.room > 4 * sheet.body.pitch_px:
        yield sheet.paragraph(column)
    yield column.lines("text", [["Yours,"], writer.names(1, 2)], sheet.body, side)
    yield from sheet.footer()


def _list(sheet: Sheet) -> Drafts:
    column, rng = sheet.column(), sheet.rng
    yield sheet.heading(column)
    if rng.random() < 0.4:
        yield sheet.paragraph(column, most=2)
    yield from sheet.listed(column, rng.randint(2, 7))
    if rng.random() < 0.4 and sheet.writer.left > 0:
        yield sheet.sub_heading(column)
        yield from sheet.listed(column, rng.randint(2, 4))
    yield from sheet.texts(column, most=2)
    yield from sheet.footer()


def _tables(sheet: Sheet) -> Drafts:
    yield from sheet.header()
    column = sheet.column()
    yield sheet.heading(column)
    for number in range(1, sheet.rng.randint(2, 4)):
        if sheet.writer.left > 0:
            yield from sheet.tabulation(column, number)
            sheet.spaced(column, None)
        if sheet.writer.left > 0 and sheet.rng.random() < 0.5:
            yield sheet.paragraph(column, most=2)
    yield from sheet.texts(column, most=2)
    yield from sheet.footer()


def _figures(sheet: Sheet) -> Drafts:
    column, number = sheet.column(), sheet.rng.randint(1, 9)
    if sheet.rng.random() < 0.7:
        yield sheet.heading(column)
    halves = column.split(2, GUTTER_PX) if column.width > 640 and sheet.rng.random() < 0.6 else [column]
    for n, half in enumerate(halves):
        yield from sheet.figure(half, number + n)
    column.top = max(half.top for half in halves)
    sheet.spaced(column, None)
    yield from sheet.texts(column, most=2)
    if sheet.writer.left > 0 and column.width > 640:
        yield from sheet.beside(column)
    yield from sheet.footer()


def _slide(sheet: Sheet) -> Drafts:
    rng = sheet.rng
    if rng.random() < 0.6:
        sheet.canvas.fill(Rect(0, 0, rng.uniform(8, 22), sheet.canvas.height_px), rng.choice(ACCENTS))
    column = sheet.column()
    yield sheet.heading(column, fewest=2)
    left, right = column.split(2, GUTTER_PX)
    if rng.random() < 0.3:
        left.right = right.right
        right.bottom = right.top
    yield from sheet.listed(left, rng.randint(2, 5))
    part = sheet.tabulation if rng.random() < 0.25 else sheet.figure
    yield from part(right, rng.randint(1, 9))
    column.top = max(left.top, right.top)
    sheet.spaced(column, None)
    yield from sheet.texts(column, most=1)
    yield from sheet.footer()


def _invoice(sheet: Sheet) -> Drafts:
    column, writer = sheet.column(), sheet.writer
    yield sheet.heading(column, words=["Invoice", writer.number()])
    left, right = column.split(2, GUTTER_PX)
    yield left.lines("text", writer.address(), sheet.body)
    yield right.text("text", ["Date:", *writer.date()], sheet.body, sheet.rng.choice(("left", "right")))
    column.top = left.top
    sheet.spaced(column, None)
    bill = writer.rows(sheet.rng.randint(2, 6), 3, bill=True)
    yield sheet.spaced(column, column.table(bill, sheet.cell, sheet.rng))
    bold = replace(sheet.body, bold=True)
    yield sheet.spaced(column, column.text("text", ["Total:", writer.amount()], bold, "right"))
    yield from sheet.texts(column)
    yield from sheet.footer()


def _receipt(sheet: Sheet) -> Drafts:
    column, writer = sheet.column(), sheet.writer
    sheet.title_align = "center"
    yield sheet.heading(column, most=2)
    yield sheet.spaced(column, column.lines("text", writer.address(), sheet.body, "center"))
    gap_px = sheet.rng.uniform(GAP_PX, sheet.gap_px)
    for _ in range(sheet.rng.randint(2, 7)):
        if writer.left > 0 and column.room > 4 * sheet.body.pitch_px:
            yield column.pair(writer.names(1, 2), [writer.amount()], sheet.body)
            column.top += gap_px
    sheet.canvas.fill(Rect(column.left, column.top, column.right, column.top + 3), PALE_INK)
    column.top += GAP_PX
    yield sheet.spaced(column, column.pair(["Total:"], [writer.amount()], replace(sheet.body, bold=True)))
    if sheet.rng.random() < 0.6:
        yield column.text("text", writer.sentence(3, 5), sheet.body, "center")


def _form(sheet: Sheet) -> Drafts:
    """Write fields with their values, in one column or in two, above pale lines."""
    yield from sheet.header()
    column, rng = sheet.column(), sheet.rng
    yield sheet.heading(column, most=3)
    for _ in range(rng.randint(1, 2)):
        if sheet.writer.left > 0:
            yield sheet.sub_heading(column)
            columns, gap_px = rng.randint(1, 2) if column.width > 640 else 1, rng.uniform(GAP_PX, sheet.gap_px)
            for _ in range(rng.randint(2, 4)):
                cells = column.split(columns, GUTTER_PX)
                for cell in (cell for cell in cells if sheet.writer.left > 0):
                    yield cell.text("text", sheet.writer.field(), sheet.body)
                    cell.top += 8
                    sheet.canvas.fill(Rect(cell.left, cell.top, cell.right, cell.top + 2), PALE_INK)
                column.top = max(cell.top for cell in cells) + gap_px
    yield from sheet.texts(column, most=2)
    yield from sheet.footer()


KINDS: dict[str, tuple[Callable[[Sheet], Drafts], int, tuple[Grid, ...]]] = {
    "article": (_article, 4, (*TALL, (2, 2))),
    "two columns": (_two_columns, 5, ((2, 3), (3, 2))),
    "letter": (_letter, 2, (*TALL, (2, 2))),
    "invoice": (_invoice, 3, ((2, 3), (2, 2))),
    "form": (_form, 2, (*TALL, (2, 2), (3, 2))),
    "tables": (_tables, 4, ((2, 3), (2, 2), (3, 2), (2, 1))),
    "figures": (_figures, 2, (*TALL, *WIDE, (1, 1))),
    "slide": (_slide, 4, WIDE),
    "receipt": (_receipt, 4, ((1, 2), (1, 3))),
    "list": (_list, 2, (*TALL, *WIDE, (1, 1))),
}
"""Each kind of page: its writer, its share, and the grids that it looks right on."""
