"""The model's grounded text: ``<|ref|>label<|/ref|><|det|>[[x1, y1, x2, y2]]<|/det|>``, then the text of that region.

Spans are those that the vendor's regular expression finds (non-greedy, across line breaks), in the same order, and
boxes are those that it goes on to draw. What the vendor drops in silence is a ``problem`` here. ``result.mmd``, the
output as Markdown, is byte for byte as the vendor writes it.
"""

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_dsocr.contract.prompt import EOS

REF, REF_END, DET, DET_END = "<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>"
IMAGE_LABEL = "image"
UNITS = 999  # the model's coordinate of a page's right and lower edge
LARGEST = 1e300  # a coordinate above it has no pixel: the arithmetic would overflow
LONGEST = 100_000
"""Characters of one span's coordinates: more than any model writes, and few enough to be read at once."""

_JOIN = REF_END + DET
_QUOTED_CHARACTERS = 40


class Box(NamedTuple):
    """Left, top, right and bottom as the model wrote them, in units of 1/999 of the page's width and height."""

    x1: float
    y1: float
    x2: float
    y2: float


class PixelBox(NamedTuple):
    """Left, top, right and bottom in pixels of the page; as little in order, or inside it, as the model's were."""

    x1: int
    y1: int
    x2: int
    y2: int


@dataclass(frozen=True)
class Span:
    """One label with its boxes, where it stands in the text, and what follows it.

    ``start`` and ``end`` are character offsets, ``raw`` is the text between them, ``text`` runs on to the next span,
    stripped. ``problem`` says why boxes are missing, or None.
    """

    label: str
    boxes: tuple[Box, ...]
    text: str
    start: int
    end: int
    raw: str
    problem: str | None


@dataclass(frozen=True)
class Markup:
    """A whole output: its spans, the text in front of the first one (stripped), and every problem found."""

    preamble: str
    spans: tuple[Span, ...]
    problems: tuple[str, ...]


def parse(text: str) -> Markup:
    """Read ``text``, a cleaned output, in time and memory linear in its length. Accepts any string."""
    matches = tuple(find_spans(text))
    starts, ends = [*(start for start, *_ in matches), len(text)], [0, *(end for *_, end in matches)]
    spans = tuple(_span(text, match, following) for match, following in zip(matches, starts[1:], strict=True))
    outside = [text[end:start] for end, start in zip(ends, starts, strict=True)]
    problems = [f"span {n} at offset {span.start}: {span.problem}" for n, span in enumerate(spans) if span.problem]
    return Markup(text[: starts[0]].strip(), spans, (*problems, *_leftovers(outside)))


def find_spans(text: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield ``(start, end of label, start of coordinates, end)`` of each span, as offsets into ``text``.

    The vendor's expression tries every ``<|ref|>`` again, which is quadratic where many are left open. Once a search
    for any of the three marks fails, no later start can succeed, so three searches a span are enough.
    """
    end = 0
    while True:
        start = text.find(REF, end)
        label_end = text.find(_JOIN, start + len(REF)) if start >= 0 else -1
        det_end = text.find(DET_END, label_end + len(_JOIN)) if label_end >= 0 else -1
        if det_end < 0:
            return
        end = det_end + len(DET_END)
        yield start, label_end, label_end + len(_JOIN), end


def read_boxes(coordinates: str) -> tuple[tuple[Box, ...], str | None]:
    """Read what stands between ``<|det|>`` and ``<|/det|>``: the boxes up to the first bad one, and what is bad."""
    try:
        value = _literal(coordinates)
    except ValueError:
        return (), f"coordinates {quote(coordinates)} cannot be read"
    if not isinstance(value, list | tuple) or not value:
        return (), f"coordinates {quote(coordinates)} hold no list of boxes"
    boxes: list[Box] = []
    for item in value:
        box = _box(item)
        if box is None:
            return tuple(boxes), f"box {len(boxes)} of {quote(coordinates)} is not four finite numbers"
        boxes.append(box)
    return tuple(boxes), None


def _literal(text: str) -> Any:
    """Evaluate a Python literal, where the vendor's code evaluates anything; raise ``ValueError`` where it is none."""
    if len(text) > LONGEST:
        raise ValueError("too long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in strings
            return ast.literal_eval(text)
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("no literal") from error


def to_pixels(box: Box, width: int, height: int) -> PixelBox:
    """Place ``box`` on a page of ``width`` x ``height`` pixels; like the vendor, truncated towards zero."""
    x1, y1, x2, y2 = (int(value / UNITS * side) for value, side in zip(box, (width, height) * 2, strict=True))
    return PixelBox(x1, y1, x2, y2)


def quote(text: str) -> str:
    """Quote the beginning of ``text`` for a message."""
    return repr(text if len(text) <= _QUOTED_CHARACTERS else text[:_QUOTED_CHARACTERS] + "...")


def _span(text: str, match: tuple[int, int, int, int], following: int) -> Span:
    start, label_end, det_start, end = match
    label = text[start + len(REF) : label_end]
    boxes, problem = read_boxes(text[det_start : end - len(DET_END)])
    if problem is None and REF in label:
        problem = f"label {quote(label)} holds a {REF} that was never closed"
    return Span(label, boxes, text[end:following].strip(), start, end, text[start:end], problem)


def _box(item: Any) -> Box | None:
    if not isinstance(item, list | tuple) or len(item) != len(Box._fields):
        return None
    numbers = [number for number in item if isinstance(number, int | float)]
    if len(numbers) < len(item) or not all(-LARGEST < number < LARGEST for number in numbers):
        return None
    return Box(*numbers)


def _leftovers(outside: list[str]) -> Iterator[str]:
    for mark in (REF, REF_END, DET, DET_END):
        if count := sum(part.count(mark) for part in outside):
            yield f"{count} {mark} outside any span"


IMAGE_REF = f"{REF}{IMAGE_LABEL}{REF_END}"


def clean_output(text: str) -> str:
    """Drop one end-of-sentence token from the end of a decoded output, then the blanks around it."""
    return text.removesuffix(EOS).strip()


def to_mmd(text: str) -> str:
    """Turn a decoded output into the text of ``result.mmd``.

    Spans that hold the image label become links, numbered by span and not by box; then all others go, one after the
    other. Each replaces every text equal to it, so equal spans share the first one's link, and what a replacement
    brings together can be found by a later span. Two LaTeX symbols are rewritten whenever a span is removed, so an
    output without such a span keeps them. A span known to be gone costs nothing: equal spans cost one replacement.
    """
    output = clean_output(text)
    spans = [output[start:end] for start, _, _, end in find_spans(output)]
    links = [span for span in spans if IMAGE_REF in span]
    steps = [(span, f"![](images/{index}.jpg)\n") for index, span in enumerate(links)]
    steps += [(span, "") for span in spans if IMAGE_REF not in span]
    gone: set[str] = set()
    for span, replacement in steps:
        if span in gone:
            continue
        changed = output.replace(span, replacement)
        if not replacement:
            changed = plain_symbols(changed)
        if changed == output:
            gone.add(span)
        else:
            gone.clear()
        output = changed
    return output


def plain_symbols(text: str) -> str:
    """Rewrite the two LaTeX symbols that the vendor rewrites."""
    return text.replace("\\coloneqq", ":=").replace("\\eqqcolon", "=:")
