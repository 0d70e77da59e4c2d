"""The first differences of two texts, word by word, in lines that fit a terminal."""

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein, Prefix

from pytest_dsocr.base.words import COLUMNS, MARGIN, plain, shown

WINDOW = 500
"""Characters of each text that are compared, from shortly before the first difference."""
CONTEXT, LONGEST_PIECE, WIDTH, MOST_LINES = 20, 36, COLUMNS - MARGIN, 3
WORD = re.compile(r"\\.|\w+|\W", re.DOTALL)
CUT = "..."


class DiffSide(StrEnum):
    """Text that contains a piece."""

    BOTH = "both"
    REFERENCE = "reference"
    SUBJECT = "subject"


MARKS = {DiffSide.BOTH: ("", ""), DiffSide.REFERENCE: ("[-", "-]"), DiffSide.SUBJECT: ("{+", "+}")}
"""The marks around a piece, as in ``git diff --word-diff``."""


class Piece(NamedTuple):
    """A part of a line, fit for a terminal."""

    side: DiffSide
    text: str

    def __str__(self) -> str:
        return self.text.join(MARKS[self.side])


DiffLine = tuple[Piece, ...]


def diff(actual: str, expected: str) -> tuple[DiffLine, ...]:
    """Return the first lines that differ between the subject's text and the reference's; none if they are equal."""
    if actual == expected:
        return ()
    at = Prefix.similarity(actual, expected)
    start = max(0, at - CONTEXT)
    ours, others = (plain(text[start : at + WINDOW]) for text in (actual, expected))
    cut = max(len(actual), len(expected)) > at + WINDOW
    pieces = [*_pieces(WORD.findall(ours), WORD.findall(others))]
    lines = _lines([*([Piece(DiffSide.BOTH, CUT)] if start else []), *(_whole(pieces) if cut else pieces)])
    return tuple(line for line in lines if _differs(line))[:MOST_LINES]


def plain_line(line: DiffLine) -> str:
    """Return a line as plain text, with marks around what only one side has."""
    return "".join(map(str, line))


def _pieces(actual: list[str], expected: list[str]) -> Iterator[Piece]:
    for edit in Levenshtein.opcodes(expected, actual):
        old, new = "".join(expected[edit.src_start : edit.src_end]), "".join(actual[edit.dest_start : edit.dest_end])
        if edit.tag == "equal":
            yield Piece(DiffSide.BOTH, old)
            continue
        if old:
            yield Piece(DiffSide.REFERENCE, shown(old, LONGEST_PIECE))
        if new:
            yield Piece(DiffSide.SUBJECT, shown(new, LONGEST_PIECE))


def _whole(pieces: list[Piece]) -> list[Piece]:
    """Leave out differences at the end that may be there only because the texts were cut there."""
    last = max((k for k, piece in enumerate(pieces) if piece.side is DiffSide.BOTH), default=0)
    return pieces[: last + 1] if _differs(pieces[:last]) else pieces


def _differs(pieces: Iterable[Piece]) -> bool:
    return any(piece.side is not DiffSide.BOTH for piece in pieces)


def _lines(pieces: Iterable[Piece]) -> Iterator[DiffLine]:
    """Break pieces into lines, and keep of equal text only a little around each difference."""
    line: list[Piece] = []
    for piece in pieces:
        same = piece.side is DiffSide.BOTH
        if same and line and len(piece.text) > 2 * CONTEXT:
            yield (*line, Piece(DiffSide.BOTH, piece.text[:CONTEXT] + CUT))
            line = []
        if same and not line and len(piece.text) > CONTEXT + len(CUT):
            piece = Piece(DiffSide.BOTH, CUT + piece.text[-CONTEXT:])
        if len(plain_line((*line, piece))) > WIDTH:
            yield tuple(line)
            line = []
        line.append(piece)
    yield tuple(line)
