"""The message of an error of unknown origin: it may be huge, steer a terminal, or raise when asked for."""

from __future__ import annotations

from pytest_dsocr.foundation.words import fit
from pytest_dsocr.subjects.time_limit import Overdue

COLUMNS = 200


def brief(error: BaseException) -> str:
    """Give an error's kind and message on one line of at most :data:`COLUMNS` that any terminal takes."""
    kind = type(error).__name__
    try:
        message = " ".join(str(error)[: 4 * COLUMNS].split())
    except Overdue as overdue:
        overdue.__context__ = None  # its message must not be asked for again
        raise
    except BaseException as its_own:
        message = f"its message cannot be shown, as asking for it raises {type(its_own).__name__}"
    return fit(f"{kind}: {message}" if message else kind, COLUMNS)
