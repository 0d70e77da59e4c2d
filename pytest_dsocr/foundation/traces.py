"""Errors of unknown origin in words: tracebacks and messages, of bounded length and fit for a terminal."""

from __future__ import annotations

import os
import traceback

from pytest_dsocr.foundation.words import PACKAGE, fit

FIRST_LINES, LAST_LINES, COLUMNS = 15, 45, 300
OF_MESSAGE = 2000
"""Columns of a message of this project: one line, which ends with what to do."""


def message_of(error: BaseException) -> str:
    """Give an error's message, or its type where asking for the message raises."""
    try:
        return str(error)
    except Exception:
        return f"{type(error).__name__}, whose message cannot be shown"


def traced(error: BaseException) -> str:
    """Give an error's traceback with its causes, and with short paths inside this package.

    Its type alone where formatting it raises.
    """
    try:
        told = "".join(traceback.format_exception(error))
    except Exception:  # its notes or its causes may be anything
        told = f"{type(error).__name__}, whose traceback cannot be shown"
    return bounded(told.replace(f'"{PACKAGE}{os.sep}', '"'))


def bounded(text: str, columns: int = COLUMNS) -> str:
    """Give ``text`` with escapes for what would steer a terminal, and shortened where it is too long."""
    lines = text.rstrip().splitlines()
    left_out = len(lines) - FIRST_LINES - LAST_LINES
    if left_out > 1:
        lines[FIRST_LINES:-LAST_LINES] = [f"  ... {left_out} lines ..."]
    return "\n".join(fit(line[: columns + 1], columns) for line in lines)
