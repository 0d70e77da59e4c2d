"""Files of a case: its page with the boxes of both sides, and the artefacts of each side.

``pages/CASE.jpg``, and in ``pages/CASE/reference`` and ``pages/CASE/subject`` ``info.json``, ``result.mmd``, the page
with its boxes, and its figures in ``images``.
"""

import math
import shutil
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont, ImageOps

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import recreate_dir, seal, write_whole
from pytest_dsocr.compare.boxes import Pairs, Placed, pair_up
from pytest_dsocr.compare.case import CaseReport, CaseRun
from pytest_dsocr.contract.artifacts import OURS, boxes_in_pixels, figure_of, overlay_of, split_pages
from pytest_dsocr.contract.drawing import (
    Font,
    Stroke,
    crop_figure,
    draw_boxes,
    draw_label,
    draw_outline,
    on_page,
    place,
)
from pytest_dsocr.contract.image import load_images
from pytest_dsocr.contract.markup import UNITS, Box, PixelBox, Span, parse, to_mmd, to_pixels
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.reference_result import InputsDigest, SpanSeen, spans_in
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
    sheet = Image.new("RGB", (2 * width + 3 * MARGIN_PX, height + HEAD_PX + FOOT_PX), PAPER)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(FONT_PX)
    for k, (title, pane) in enumerate(panes.items()):
        left = MARGIN_PX + k * (width + MARGIN_PX)
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
    alike = [(a.label, a.box) == (b.label, b.box) for a, b in pairs.both]
    equal = [pair for pair, same in zip(pairs.both, alike, strict=True) if same]
    return equal, [pair for pair, same in zip(pairs.both, alike, strict=True) if not same]


def _drawn(page: Image.Image, marks: Iterator[Mark]) -> Image.Image:
    pane = page.copy()
    pen, font = ImageDraw.Draw(pane), ImageFont.load_default(LABEL_PX)
    for placed, stroke in marks:
        corners = on_page(to_pixels(_clipped(placed.box), *pane.size), *pane.size)
        draw_outline(pen, corners, stroke)
        if not stroke.dashed:
            draw_label(pen, placed.label, corners, stroke.colour, font)
    return pane


def _clipped(box: Box) -> Box:
    """Move every side onto the page; a model may output 1e300, and a recording may contain infinity or NaN."""
    return Box(*(max(0.0, min(float(UNITS), side)) for side in box))


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
    """Draw a case into ``folder``, and return the file.

    Raises:
        DsocrError: if it cannot be written.
    """
    case, expected, actual = report.case, report.exchange.expected.output, report.exchange.answer
    pages = _pages(case)
    wanted, own = (_by_page(case, one.text, one.spans, len(pages)) for one in (expected, actual))
    pictures = [side_by_side(*drawn, str(report.verdict)) for drawn in zip(pages, wanted, own, strict=True)]
    content = BytesIO()
    _stacked(pictures).save(content, "JPEG", quality=90)
    return write_whole(folder / picture_name(case.id), content.getvalue(), shared=True)


def _pages(case: Case) -> list[Image.Image]:
    found = load_images(case.page)
    return found if isinstance(found, list) else [found]


def _by_page(case: Case, text: str, spans: Sequence[SpanSeen], pages: int) -> list[Sequence[SpanSeen]]:
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
        sheet.paste(one, (0, top))
        top += one.height
    return sheet


FORMAT = 1
MOST_CHARACTERS, MOST_BOXES, MOST_OF_LABEL = 200_000, 5_000, 200
"""Largest amounts that are written for one side, several times the output of 8192 tokens."""
MOST_FIGURES = 100
"""Number of figures that are cut out of a page at most."""
LARGEST_PICTURE_PX = (1600, 1600)
REFERENCE, SUBJECT = "reference", "subject"


def side_folder(case_id: str) -> str:
    """Name the folder of both sides' files of a case, relative to the run's folder."""
    return picture_name(case_id).removesuffix(".jpg")


def write_sides(report: CaseReport, folder: Path) -> Path:
    """Write the artefacts of both sides into ``folder/reference`` and ``folder/subject``; return ``folder``.

    Existing files are removed. A subject that raised has the artefacts of its earlier stages.

    Raises:
        DsocrError: if it cannot be written.
    """
    exchange, case = report.exchange, report.case
    answer, expected, form = exchange.answer, exchange.expected.output, case.family.form
    pages = _pages(case)
    sizes, written = [page.size for page in pages], {REFERENCE: expected.mmd}
    read = {
        REFERENCE: _read(case, expected.text, expected.spans, len(pages)),
        SUBJECT: _read(case, answer.text, answer.spans, len(pages)),
    }
    infos = {
        REFERENCE: _info_of_reference(exchange, sizes, read[REFERENCE]),
        SUBJECT: _info_of_subject(exchange, sizes, read[SUBJECT]),
    }
    if "read" not in answer.lost:
        plain = answer.text if case.is_several else to_mmd(answer.text, form)
        written[SUBJECT] = plain if answer.mmd is None else answer.mmd
    drawn = lru_cache(None)(lambda at, number, spans: _pictures(pages[at], number, spans))  # once, where equal
    files = {side: {OURS: seal(info)} for side, info in infos.items()}
    for side, mmd in written.items():
        files[side][form.result_file] = _sound(mmd).encode()
        for at, spans in enumerate(read[side]):
            files[side] |= drawn(at, at if case.is_several else None, spans)
    recreate_dir(folder)
    for side, of_side in files.items():
        _write(folder / side, of_side)
    if expected.kept:
        _keep(expected.kept, folder / REFERENCE)
    return folder


Sizes = Sequence[tuple[int, int]]
"""Width and height of each page, in pixels."""
PagesRead = Sequence[tuple[Span, ...]]
"""Spans of each page."""


def _info_of_reference(exchange: CaseRun, sizes: Sizes, read: PagesRead) -> dict[str, Any]:
    seen = exchange.expected
    made = seen.provenance.to_json() if seen.provenance else None
    info = _info(exchange.case, sizes, read, seen.output.text, seen.inputs, seen.token_ids)
    files = {name: one.bytes for name, one in seen.output.artefacts.items() if name != OURS}
    return {**info, "files": files, "seconds": exchange.reference_s, "provenance": made}


def _info_of_subject(exchange: CaseRun, sizes: Sizes, read: PagesRead) -> dict[str, Any]:
    answer = exchange.answer
    chosen = None if answer.forced is None else [step.token for step in answer.forced]
    info = _info(exchange.case, sizes, read, answer.text, answer.inputs, chosen)
    return {**info, "level": str(answer.level), "seconds": exchange.subject_s}


def _info(
    case: Case, sizes: Sizes, read: PagesRead, text: str, inputs: InputsDigest | None, tokens: Sequence[int] | None
) -> dict[str, Any]:
    pages = [{"width": width, "height": height} for width, height in sizes]
    return {
        "format": FORMAT,
        "case": {"id": case.id, **case.to_json()},
        **({"pages": pages} if case.is_several else {"page": pages[0]}),
        "text": _sound(text),
        "token_ids": tokens,
        "spans": [{"label": one.label, "boxes": one.boxes} for own in read for one in own],
        "boxes": [
            box
            for number, (size, own) in enumerate(zip(sizes, read, strict=True))
            for box in boxes_in_pixels(own, size, number if case.is_several else None)
        ],
        "grid": inputs.images_spatial_crop if inputs else None,
        "shapes": inputs.shapes if inputs else None,
        "image_tokens": inputs.image_tokens if inputs else None,
    }


def _read(case: Case, text: str, spans: Sequence[SpanSeen], pages: int) -> PagesRead:
    """Return the spans of each page, each with the text that follows it."""
    said = [*split_pages(text), *([""] * pages)] if case.is_several else [text]
    seen = _by_page(case, text, spans, pages)
    return [_kept(own, parse(one, case.family.form).spans) for own, one in zip(seen, said, strict=False)]


def _kept(spans: Sequence[SpanSeen], parsed: Sequence[Span]) -> tuple[Span, ...]:
    """Return the first spans, boxes and texts, up to the limits and without boxes that have infinity or NaN."""
    texts: dict[tuple[str, tuple[Box, ...]], deque[str]] = defaultdict(deque)
    for one in parsed:
        texts[one.label, one.boxes].append(one.text)
    found: list[Span] = []
    left, characters = MOST_BOXES, MOST_CHARACTERS
    for span in spans[:MOST_BOXES]:
        boxes = tuple(box for box in span.boxes[:left] if all(map(math.isfinite, box)))
        behind = texts[span.label, span.boxes]
        text = (behind.popleft() if behind else "")[: characters // max(1, len(boxes))]
        found.append(Span(_sound(span.label[:MOST_OF_LABEL]), boxes, _sound(text), 0, 0, None))
        left, characters = left - len(boxes), characters - len(text) * len(boxes)
    return tuple(found)


def _sound(text: str) -> str:
    """Return the first characters of a text, without broken ones."""
    return text[:MOST_CHARACTERS].encode("utf-8", "backslashreplace").decode()


def _pictures(page: Image.Image, number: int | None, spans: Sequence[Span]) -> dict[str, bytes]:
    """Return the page with its boxes, and its figures, by file name."""
    found = {overlay_of(number): _jpeg(draw_boxes(_small(page), spans))}
    for region in place(spans, *page.size):
        if region.figure is not None and region.figure < MOST_FIGURES:
            with suppress(DsocrError):  # a box without area, or too far off the page
                figure = crop_figure(page, region.pixels)
                found[figure_of(number, region.figure)] = _jpeg(_small(figure))
    return found


def _small(picture: Image.Image) -> Image.Image:
    return ImageOps.contain(picture, LARGEST_PICTURE_PX) if max(picture.size) > max(LARGEST_PICTURE_PX) else picture


def _jpeg(picture: Image.Image) -> bytes:
    content = BytesIO()
    picture.save(content, "JPEG")
    return content.getvalue()


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    try:
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _keep(kept: Path, folder: Path) -> None:
    """Replace our files of the reference by those that the vendor's own code wrote."""
    try:
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        shutil.rmtree(kept)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> DsocrError:
    return DsocrError(f"{folder} cannot be written ({error.strerror or error}); make room, or give another folder")
