"""What one side made of a case, as files of a folder: ``info.json``, ``result.mmd``, the page with its boxes.

Of a run that compares, ``pages/CASE/reference`` and ``pages/CASE/subject``; of ``dsocr vendor run`` a folder a case.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from pytest_dsocr.compare.case import CaseReport, Exchange
from pytest_dsocr.contract.artifacts import MMD, OURS, OVERLAY
from pytest_dsocr.contract.drawing import draw_boxes
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.markup import Box, Span, to_pixels
from pytest_dsocr.contract.mmd import to_mmd
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import made_anew, seal, unseal
from pytest_dsocr.foundation.reading import Format
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import InputsDigest, Observation, SpanSeen
from pytest_dsocr.observation.provenance import Provenance
from pytest_dsocr.reference.recorded_case import MALFORMED, traits
from pytest_dsocr.report.payload import picture_name

FORMAT = 1
INFOS = Format(dict[str, Any], "have it read again", parse=unseal)
MOST_CHARACTERS, MOST_BOXES, MOST_OF_LABEL = 200_000, 5_000, 200
"""The most of a side's reading that is written: several times what 8192 tokens can hold."""
LARGEST_PX = (1600, 1600)
REFERENCE, SUBJECT = "reference", "subject"


def side_folder(case_id: str) -> str:
    """Name the folder of both sides' files of a case, relative to the run's folder."""
    return picture_name(case_id).removesuffix(".jpg")


def write_sides(report: CaseReport, folder: Path) -> Path:
    """Write what both sides read into ``folder/reference`` and ``folder/subject``, made anew; return ``folder``.

    Of a subject that raised there is what it gave before.

    Raises:
        DsocrError: where it cannot be written.
    """
    exchange, page = report.exchange, load_image(report.case.page)
    answer, expected = exchange.answer, exchange.expected.output
    infos = {
        REFERENCE: info_of(report.case, exchange.expected, page.size, exchange.reference_s),
        SUBJECT: _info_of_subject(exchange, page.size),
    }
    outputs = {REFERENCE: (_kept(expected.spans), expected.mmd)}
    if "read" not in answer.lost:
        outputs[SUBJECT] = _kept(answer.spans), to_mmd(answer.text) if answer.mmd is None else answer.mmd
    overlays = {spans: _overlay(page, spans) for spans in {spans for spans, _ in outputs.values()}}  # one, where equal
    made_anew(folder)
    for side, info in infos.items():
        files = {OURS: seal(info)}
        if side in outputs:
            spans, mmd = outputs[side]
            files |= {MMD: _sound(mmd).encode(), OVERLAY: overlays[spans]}
        _write(folder / side, files)
    return folder


def info_of(case: Case, seen: Observation, page_px: tuple[int, int], seconds: float) -> dict[str, Any]:
    """Return what the reference made of ``case`` as JSON values.

    Args:
        case: the page, the prompt and the preset.
        seen: by the reference.
        page_px: width and height of the page.
        seconds: what it took; of a recording, to read it.
    """
    made = seen.provenance.to_json() if seen.provenance else None
    info = _info(case, seen.output.text, seen.output.spans, page_px, seen.inputs, seen.token_ids)
    files = {name: one.bytes for name, one in seen.output.artefacts.items() if name != OURS}
    return {**info, "files": files, "seconds": seconds, "provenance": made}


def is_kept(folder: Path, case: Case, made: Provenance) -> bool:
    """Return whether ``folder`` holds all that a reference of this provenance made of ``case``."""
    try:
        info = INFOS.read(folder / OURS)
        if traits(info["case"]) != traits(case.to_json()):
            return False
        if Provenance.from_json(info["provenance"]).differences(made.with_ceiling(case.max_new_tokens)):
            return False
        return all((folder / name).stat().st_size == size for name, size in info["files"].items())
    except (OSError, *MALFORMED):
        return False


def _info_of_subject(exchange: Exchange, page_px: tuple[int, int]) -> dict[str, Any]:
    answer = exchange.answer
    chosen = None if answer.forced is None else [step.token for step in answer.forced]
    info = _info(exchange.case, answer.text, answer.spans, page_px, answer.inputs, chosen)
    return {**info, "level": str(answer.level), "seconds": exchange.subject_s}


def _info(
    case: Case,
    text: str,
    spans: Sequence[SpanSeen],
    page_px: tuple[int, int],
    inputs: InputsDigest | None,
    tokens: Sequence[int] | None,
) -> dict[str, Any]:
    spans = _kept(spans)
    return {
        "format": FORMAT,
        "case": {"id": case.id, **case.to_json()},
        "page": {"width": page_px[0], "height": page_px[1]},
        "text": _sound(text),
        "token_ids": tokens,
        "spans": [one._asdict() for one in spans],
        "boxes": [{"label": one.label, **_in_pixels(box, page_px)} for one in spans for box in one.boxes],
        "grid": inputs.images_spatial_crop if inputs else None,
        "shapes": inputs.shapes if inputs else None,
        "image_tokens": inputs.image_tokens if inputs else None,
    }


def _in_pixels(box: Box, page_px: tuple[int, int]) -> Mapping[str, int]:
    x1, y1, x2, y2 = to_pixels(box, *page_px)
    return {"x": x1, "y": y1, "w": x2 - x1, "h": y2 - y1}


def _kept(spans: Sequence[SpanSeen]) -> tuple[SpanSeen, ...]:
    """Return as many spans and boxes as are kept, without boxes that have no place: an infinity, a NaN."""
    found: list[SpanSeen] = []
    left = MOST_BOXES
    for span in spans[:MOST_BOXES]:
        boxes = tuple(box for box in span.boxes[:left] if all(map(math.isfinite, box)))
        found.append(SpanSeen(_sound(span.label[:MOST_OF_LABEL]), boxes))
        left -= len(boxes)
    return tuple(found)


def _sound(text: str) -> str:
    """Return as much of a text as is kept, in whole characters."""
    return text[:MOST_CHARACTERS].encode("utf-8", "backslashreplace").decode()


def _overlay(page: Image.Image, spans: Sequence[SpanSeen]) -> bytes:
    small = ImageOps.contain(page, LARGEST_PX) if max(page.size) > max(LARGEST_PX) else page
    content = io.BytesIO()
    draw_boxes(small, [Span(one.label, one.boxes, "", 0, 0, "", None) for one in spans]).save(content, "JPEG")
    return content.getvalue()


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    try:
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise DsocrError(f"{folder} cannot be written ({error.strerror}); make room, or give another folder") from error
