"""The differences of two texts in a failure: plain lines for the report, which the terminal's own process colours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_dsocr.compare.diff import Line, Piece, Side, plain_line
from pytest_dsocr.foundation.words import MARGIN
from pytest_dsocr.report.payload import ComparisonPayload

LEGEND: Line = (
    Piece(Side.REFERENCE, "only in the reference"),
    Piece(Side.BOTH, " "),
    Piece(Side.SUBJECT, "only in the subject"),
)
MARKUP: Mapping[Side, Mapping[str, bool]] = {
    Side.BOTH: {},
    Side.REFERENCE: {"red": True},
    Side.SUBJECT: {"green": True},
}
"""How pytest's terminal writer colours a piece."""


def diff_lines(diff: Sequence[Line]) -> Iterator[str]:
    """Yield the lines of a failure that show a diff, under a legend; none where there is no diff."""
    yield from (plain for plain, _ in _lines(diff))


def coloured_pieces(comparisons: Iterable[ComparisonPayload]) -> Mapping[str, Line]:
    """Give the pieces to colour of each line that :func:`diff_lines` yields for any of ``comparisons``."""
    found: dict[str, Line] = {}
    for one in comparisons:
        found.update(_lines([tuple(Piece(Side(side), text) for side, text in line) for line in one["diff"]]))
    return found


def _lines(diff: Sequence[Line]) -> Iterator[tuple[str, Line]]:
    for k, line in enumerate((LEGEND, *diff) if diff else ()):
        beside = Piece(Side.BOTH, f"{'' if k else 'diff':<{MARGIN}}")
        yield plain_line((beside, *line)), (beside, *line)
