"""An error of unknown origin in words: its text may be huge, steer a terminal, or not be had at all."""

from __future__ import annotations

from itertools import islice
from traceback import TracebackException

from pytest_dsocr.report.words import fit
from pytest_dsocr.subjects.time_limit import Overdue

COLUMNS = 200
LINES_OF_A_PART, PARTS_IN_FRONT, PARTS_AT_THE_END = 40, 10, 30


def said(error: BaseException) -> str:
    """Give an error's kind and message on one line of at most :data:`COLUMNS` that any terminal takes."""
    kind = type(error).__name__
    try:
        message = " ".join(str(error)[: 4 * COLUMNS].split())
    except Overdue as overdue:
        overdue.__context__ = None  # whoever tells of that one is to ask no more
        raise
    except BaseException as its_own:
        message = f"its message cannot be had, for asking for it raises {type(its_own).__name__}"
    return fit(f"{kind}: {message}" if message else kind, COLUMNS)


def trace_of(error: BaseException) -> str:
    """Give an error's traceback, and of those that it came from, in as many lines as can be read."""
    parts = [_short(part) for part in TracebackException.from_exception(error).format()]
    left_out = len(parts) - PARTS_IN_FRONT - PARTS_AT_THE_END
    if left_out > 0:
        parts[PARTS_IN_FRONT:-PARTS_AT_THE_END] = [f"  ... {left_out} more"]
    return "\n".join(parts)


def _short(part: str) -> str:
    """Give the first lines of a frame or of a message, each cut and printable."""
    lines = part[: LINES_OF_A_PART * COLUMNS].splitlines()
    return "\n".join(fit(line, COLUMNS) for line in islice(lines, LINES_OF_A_PART))
