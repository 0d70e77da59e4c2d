"""Artefacts of each side of a case.

``pages/CASE/reference`` and ``pages/CASE/subject`` have ``info.json``, ``result.mmd``, the page with its boxes, and its
figures in ``images``.
"""

import math
import shutil
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import recreate_dir, seal
from pytest_dsocr.compare.case import CaseReport, CaseRun
from pytest_dsocr.contract.artifacts import OURS, boxes_in_pixels, figure_of, overlay_of, split_pages
from pytest_dsocr.contract.drawing import crop_figure, draw_boxes, place
from pytest_dsocr.contract.markup import Box, Span, parse, to_mmd
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.reference_result import InputsDigest, SpanSeen
from pytest_dsocr.report.pictures import pages_of, spans_by_page

FORMAT = 1
MOST_CHARACTERS, MOST_BOXES, MOST_OF_LABEL = 200_000, 5_000, 200
"""Largest amounts that are written for one side, several times the output of 8192 tokens."""
MOST_FIGURES = 100
"""Number of figures that are cut out of a page at most."""
LARGEST_PICTURE_PX = (1600, 1600)
REFERENCE, SUBJECT = "reference", "subject"


def write_sides(report: CaseReport, folder: Path) -> Path:
    """Write the artefacts of both sides into ``folder/reference`` and ``folder/subject``; return ``folder``.

    Existing files are removed. A subject that raised has the artefacts of its earlier stages.

    Raises:
        DsocrError: if it cannot be written.
    """
    exchange, case = report.exchange, report.case
    answer, expected, form = exchange.answer, exchange.expected.output, case.family.form
    pages = pages_of(case)
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
    seen = spans_by_page(case, text, spans, pages)
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
