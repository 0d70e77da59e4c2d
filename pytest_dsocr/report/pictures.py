"""Picture of a case, ``pages/CASE.jpg``: its page with the boxes of both sides."""

from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps

from pytest_dsocr.base.files import write_whole
from pytest_dsocr.compare.boxes import Pairs, Placed, pair_up
from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.contract.artifacts import split_pages
from pytest_dsocr.contract.drawing import Font, Stroke, draw_label, draw_outline, on_page
from pytest_dsocr.contract.image import load_images
from pytest_dsocr.contract.markup import UNITS, Box, PixelBox, to_pixels
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.reference_result import SpanSeen, spans_in
from pytest_dsocr.report.case_result import picture_name

LARGEST_PX = (900, 1200)
MOST_HEIGHT_PX = 24_000
MARGIN_PX, HEAD_PX, FOOT_PX, FONT_PX, LABEL_PX, SWATCH_PX = 12, 30, 34, 16, 13, 28
PAPER, INK = (236, 236, 236), (32, 32, 32)
GREY, BLUE, RED = (120, 120, 120), (0, 82, 204), (214, 20, 20)


Mark = tuple[Placed, Stroke]
"""A box, and how it is drawn."""
EQUAL, EXPECTED, ACTUAL = Stroke(GREY, 1), Stroke(BLUE, 3), Stroke(RED, 3)
MISSING, SURPLUS, WANTED = Stroke(BLUE, 5), Stroke(RED, 5), Stroke(BLUE, 2, dashed=True)


def side_by_side(
    page: Image.Image, reference: Sequence[SpanSeen], subject: Sequence[SpanSeen], verdict: str
) -> Image.Image:
    """Draw ``page`` with the boxes of each side, under its name and number of boxes, above a legend.

    Equal boxes are thin and grey. Boxes that differ are blue on the reference's side and red on the subject's, and
    thick if the other side lacks them. Dashed boxes on the subject's side are the reference's.
    """
    pairs = pair_up(subject, reference)
    small = ImageOps.contain(page.convert("RGB"), LARGEST_PX)
    panes = {
        f"reference: {len(pairs.expected)} boxes": _drawn(small, _reference_marks(pairs)),
        f"subject: {len(pairs.actual)} boxes ({verdict})": _drawn(small, _subject_marks(pairs)),
    }
    width, height = small.size
    sheet = Image.new("RGB", (2 * (width + 2 * MARGIN_PX), height + HEAD_PX + FOOT_PX), PAPER)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(FONT_PX)
    for k, (title, pane) in enumerate(panes.items()):
        left = MARGIN_PX + k * (width + 2 * MARGIN_PX)  # the page shows each half alone
        pen.text((left, (HEAD_PX - FONT_PX) // 2), title, INK, font)
        sheet.paste(pane, (left, HEAD_PX))
    _draw_legend(pen, font, HEAD_PX + height, pairs)
    return sheet


def _reference_marks(pairs: Pairs) -> Iterator[Mark]:
    """Yield the marks on the reference's side; boxes that differ come last, on top."""
    equal, differing = _paired(pairs)
    yield from ((expected, EQUAL) for _, expected in equal)
    yield from ((expected, EXPECTED) for _, expected in differing)
    yield from ((one, MISSING) for one in pairs.missing)


def _subject_marks(pairs: Pairs) -> Iterator[Mark]:
    equal, differing = _paired(pairs)
    yield from ((actual, EQUAL) for actual, _ in equal)
    yield from ((one, WANTED) for one in [*pairs.missing, *(expected for _, expected in differing)])
    yield from ((actual, ACTUAL) for actual, _ in differing)
    yield from ((one, SURPLUS) for one in pairs.surplus)


def _paired(pairs: Pairs) -> tuple[list[tuple[Placed, Placed]], list[tuple[Placed, Placed]]]:
    """Return the pairs that are equal in label and place, and those that are not."""
    found: dict[bool, list[tuple[Placed, Placed]]] = {True: [], False: []}
    for a, b in pairs.both:
        found[(a.label, a.box) == (b.label, b.box)].append((a, b))
    return found[True], found[False]


def _drawn(page: Image.Image, marks: Iterator[Mark]) -> Image.Image:
    pane = page.copy()
    pen, font = ImageDraw.Draw(pane), ImageFont.load_default(LABEL_PX)
    for placed, stroke in marks:
        sides = (max(0.0, min(float(UNITS), side)) for side in placed.box)  # a model may output 1e300, infinity or NaN
        corners = on_page(to_pixels(Box(*sides), *pane.size), *pane.size)
        draw_outline(pen, corners, stroke)
        if not stroke.dashed:
            draw_label(pen, placed.label, corners, stroke.colour, font)
    return pane


def _draw_legend(pen: ImageDraw.ImageDraw, font: Font, top: int, pairs: Pairs) -> None:
    """Draw the meaning of each stroke, and its number of boxes."""
    equal, differing = _paired(pairs)
    entries = (
        (EQUAL, f"{len(equal)} equal"),
        (ACTUAL, f"{len(differing)} elsewhere or under another label"),
        (WANTED, "where the reference has it"),
        (MISSING, f"{len(pairs.missing)} missing"),
        (SURPLUS, f"{len(pairs.surplus)} surplus"),
    )
    x, middle = MARGIN_PX, top + FOOT_PX // 2
    for stroke, text in entries if len(equal) < len(pairs.both) or pairs.missing or pairs.surplus else entries[:1]:
        draw_outline(pen, PixelBox(x, middle - 8, x + SWATCH_PX, middle + 8), stroke)
        pen.text((x + SWATCH_PX + 6, middle), text, INK, font, anchor="lm")
        x += SWATCH_PX + 26 + round(font.getlength(text))


def draw(report: CaseReport, folder: Path) -> Path:
    """Draw a case into ``folder``, and return the file; raise ``DsocrError`` if it cannot be written."""
    case, expected, actual = report.case, report.exchange.expected.output, report.exchange.answer
    pages = pages_of(case)
    wanted, own = (spans_by_page(case, one.text, one.spans, len(pages)) for one in (expected, actual))
    pictures = [side_by_side(*drawn, str(report.verdict)) for drawn in zip(pages, wanted, own, strict=True)]
    content = BytesIO()
    _stacked(pictures).save(content, "JPEG", quality=90)
    return write_whole(folder / picture_name(case.id), content.getvalue(), shared=True)


def pages_of(case: Case) -> list[Image.Image]:
    """Return the page of a case, or each of several."""
    found = load_images(case.page)
    return found if isinstance(found, list) else [found]


def spans_by_page(case: Case, text: str, spans: Sequence[SpanSeen], pages: int) -> list[Sequence[SpanSeen]]:
    """Return the spans of each page; a single page has all of them."""
    if not case.is_several:
        return [spans]
    said = [*split_pages(text), *([""] * pages)]
    return [spans_in(one, case.family.form) for one in said[:pages]]


def _stacked(pictures: Sequence[Image.Image]) -> Image.Image:
    """Stack pictures, and shrink them if they are many."""
    if len(pictures) == 1:
        return pictures[0]
    small = [ImageOps.contain(one, (one.width, max(1, MOST_HEIGHT_PX // len(pictures)))) for one in pictures]
    sheet = Image.new("RGB", (max(one.width for one in small), sum(one.height for one in small)), PAPER)
    top = 0
    for one in small:
        half = one.width // 2
        for k in range(2):
            sheet.paste(one.crop((k * half, 0, (k + 1) * half, one.height)), (k * sheet.width // 2, top))
        top += one.height
    return sheet
