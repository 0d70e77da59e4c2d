"""The model's grounded text: ``<|ref|>label<|/ref|><|det|>[[x1, y1, x2, y2]]<|/det|>``, then the text of that region.

The spans are those that the vendor's regular expressions find (non-greedy, across line breaks), in the same order.
The boxes are those that the vendor draws; one that it drops in silence has a ``problem`` here. ``result.mmd``, the
output as Markdown, is byte for byte as the vendor writes it.
"""

import ast
import re
import warnings
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_dsocr.contract.prompt import EOS

REF, REF_END, DET, DET_END = "<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>"
IMAGE_LABEL = "image"
UNITS = 999  # the model's coordinate of a page's right and lower edge
LARGEST = 1e300  # a coordinate above it has no pixel: the arithmetic would overflow
LONGEST = 100_000
"""Most characters of one span's coordinates: more than any model writes, and few enough to be parsed quickly."""

_JOIN = REF_END + DET
_LABEL_IN_DET = re.compile(rf"{re.escape(DET)}\s*([A-Za-z_][\w-]*+)\s*+\[")
_END_OF_DET = re.compile(rf"\s*{re.escape(DET_END)}")
_QUOTED_CHARACTERS = 40


@dataclass(frozen=True)
class OutputForm:
    """Rules of a model's markup, and the file that an output becomes."""

    label_in_det: bool
    """Whether ``<|det|>label [x1, y1, x2, y2]<|/det|>`` is a span too. Such spans come after all others, and may
    overlap them."""
    flat_box: bool
    """Whether the coordinates of one box need no list around it."""
    strips_label: bool
    """Whether a label with blanks around ``image`` becomes a link too; it is still no figure."""
    result_file: str


class Match(NamedTuple):
    """Offsets of a span in a text, with its label and coordinates."""

    start: int
    end: int
    label: str
    coordinates: str


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
    """A label with its boxes, its offsets in the text, and the text that follows.

    ``start`` and ``end`` are character offsets; ``text`` extends to the next span, stripped. ``problem`` says why boxes
    are missing, or None.
    """

    label: str
    boxes: tuple[Box, ...]
    text: str
    start: int
    end: int
    problem: str | None


@dataclass(frozen=True)
class Markup:
    """A whole output: its spans in the vendor's order, and every problem found."""

    spans: tuple[Span, ...]
    problems: tuple[str, ...]


def parse(text: str, form: OutputForm) -> Markup:
    """Read ``text``, a cleaned output, in time and memory nearly linear in its length. Accepts any string."""
    matches = tuple(find_spans(text, form))
    starts = [*sorted(match.start for match in matches), len(text)]
    spans = tuple(_span(text, match, starts[bisect_left(starts, match.end)], form) for match in matches)
    problems = [f"span {n} at offset {span.start}: {span.problem}" for n, span in enumerate(spans) if span.problem]
    return Markup(spans, (*problems, *_leftovers(_outside(text, sorted(matches)))))


def find_spans(text: str, form: OutputForm) -> Iterator[Match]:
    """Yield each span in the vendor's order, in time linear in the text's length."""
    yield from _with_refs(text)
    if form.label_in_det:
        yield from _with_labels_in_det(text)


def _with_refs(text: str) -> Iterator[Match]:
    """Find the spans that start with ``<|ref|>``.

    The vendor's expression tries every ``<|ref|>`` again, which is quadratic if many are left open. Once a search
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
        yield Match(start, end, text[start + len(REF) : label_end], text[label_end + len(_JOIN) : det_end])


def _with_labels_in_det(text: str) -> Iterator[Match]:
    """Find the spans that start with ``<|det|>`` and a label: a bracket up to the first ``]``, whatever is in it.

    The vendor's expression searches for that ``]`` again from each start; this function searches for it once.
    """
    at, close, tail = 0, -1, None
    while head := _LABEL_IN_DET.search(text, at):
        if close < head.end():
            close = text.find("]", head.end())
            if close < 0:
                return
            tail = _END_OF_DET.match(text, close + 1)
        at = head.end()
        if tail and close > at:
            at = tail.end()
            yield Match(head.start(), at, head[1], text[head.end() - 1 : close + 1])


def _outside(text: str, in_order: Sequence[Match]) -> list[str]:
    """Return the parts of ``text`` that are in no span."""
    parts, at = [], 0
    for match in in_order:
        parts.append(text[at : match.start])
        at = max(at, match.end)
    return [*parts, text[at:]]


def read_boxes(coordinates: str, form: OutputForm) -> tuple[tuple[Box, ...], str | None]:
    """Read a span's coordinates: the boxes up to the first bad one, and what is bad."""
    try:
        value = _literal(coordinates)
    except ValueError:
        return (), f"coordinates {quote(coordinates)} cannot be read"
    if not isinstance(value, list | tuple) or not value:
        return (), f"coordinates {quote(coordinates)} hold no list of boxes"
    boxes: list[Box] = []
    for item in [value] if form.flat_box and isinstance(value[0], int | float) else value:
        box = _box(item)
        if box is None:
            return tuple(boxes), f"box {len(boxes)} of {quote(coordinates)} is not four finite numbers"
        boxes.append(box)
    return tuple(boxes), None


def _literal(text: str) -> Any:
    """Evaluate a Python literal, where the vendor's code evaluates anything; raise ``ValueError`` if it is none."""
    if len(text) > LONGEST:
        raise ValueError("too long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in strings
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


def _span(text: str, match: Match, following: int, form: OutputForm) -> Span:
    start, end, label, coordinates = match
    boxes, problem = read_boxes(coordinates, form)
    if problem is None and REF in label:
        problem = f"label {quote(label)} holds a {REF} that was never closed"
    return Span(label, boxes, text[end:following].strip(), start, end, problem)


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


def to_mmd(text: str, form: OutputForm) -> str:
    """Turn a decoded output into the text of ``result.mmd``; see :func:`rewritten`."""
    return rewritten(clean_output(text), form)


def rewritten(output: str, form: OutputForm, prefix: str = "") -> str:
    """Rewrite a cleaned output; ``prefix`` precedes the numbers of figures.

    Spans with the image label become links, numbered by span and not by box. Then all others are removed, one after the
    other. Each replaces every text equal to it, so equal spans share the first one's link. A later span may consist of
    text that a replacement joined. Two LaTeX symbols are rewritten whenever a span is removed, so an output without
    such a span keeps them. A span known to be gone costs nothing: equal spans cost one replacement.
    """
    found = spans_with_links(output, form)
    links = [span for span, is_figure in found if is_figure]
    steps = [(span, f"![](images/{prefix}{index}.jpg)\n") for index, span in enumerate(links)]
    steps += [(span, "") for span, is_figure in found if not is_figure]
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


def spans_with_links(output: str, form: OutputForm) -> list[tuple[str, bool]]:
    """Return the text of each span, and whether it becomes a link to a figure."""
    return [(output[one.start : one.end], is_link(one, output, form)) for one in find_spans(output, form)]


def is_link(match: Match, output: str, form: OutputForm) -> bool:
    """Return whether a span becomes a link to a figure."""
    if form.strips_label and match.label.strip() == IMAGE_LABEL:
        return True
    return output.find(IMAGE_REF, match.start, match.end) >= 0


def plain_symbols(text: str) -> str:
    """Rewrite the two LaTeX symbols that the vendor rewrites."""
    return text.replace("\\coloneqq", ":=").replace("\\eqqcolon", "=:")
