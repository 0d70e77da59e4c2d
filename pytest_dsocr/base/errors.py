"""The one exception that this project raises on bad input, what is a machine's fault, and errors in words."""

import errno
import os
import sys
import traceback
from collections.abc import Iterator

from pytest_dsocr.base.words import PACKAGE, fit, printable

FULL_OR_BROKEN = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENOMEM))
"""Of an ``OSError``: no room, a broken or a closed disk, no memory."""
LOST_GPU = frozenset((2, 3, 35, 46, 100, 101, 214, 220, 800, 802, 803))
"""Of CUDA's errors: no memory, no device or driver, a device in use, memory or NVLink that cannot be corrected."""

LONGEST = 10_000
"""Characters of a message, which may name what a damaged file holds."""


class DsocrError(Exception):
    """Bad input, or a machine that lacks what was asked for.

    The message is one sentence: what was wrong, then what to do about it. Names of files in it, and what others said,
    cannot steer the terminal that it is shown on.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return printable(text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}")


class MachineError(DsocrError):
    """What was asked for is not there or cannot be used: weights, a GPU, a reference. It says nothing of the subject.

    A subject may raise it as well.
    """


def is_of_machine(error: BaseException | None) -> bool:
    """Return whether an error, or one that it came from, is the machine's: by its type and its number alone."""
    return any(map(_is_of_machine, _causes(error)))


def _is_of_machine(error: BaseException) -> bool:
    if isinstance(error, MachineError | MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno in FULL_OR_BROKEN
    torch = sys.modules.get("torch")  # never imported for an error: one of its own comes with it
    if torch is None:
        return False
    accelerator = getattr(torch, "AcceleratorError", ())
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, accelerator) and getattr(error, "error_code", None) in LOST_GPU
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


FIRST_LINES, LAST_LINES, COLUMNS = 15, 45, 300
OF_MESSAGE = 2000
"""Columns of a message of this project: one line, which ends with what to do."""


def message_of(error: BaseException) -> str:
    """Return an error's message, or its type where asking for the message raises."""
    try:
        return str(error)
    except Exception:
        return f"{type(error).__name__}, whose message cannot be shown"


def traced(error: BaseException) -> str:
    """Return an error's traceback with its causes, and with short paths inside this package.

    Its type alone where formatting it raises.
    """
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # its notes or its causes may be anything
        text = f"{type(error).__name__}, whose traceback cannot be shown"
    return bounded(text.replace(f'"{PACKAGE}{os.sep}', '"'))


def bounded(text: str, columns: int = COLUMNS) -> str:
    """Return ``text`` with escapes for what would steer a terminal, and shortened where it is too long."""
    lines = text.rstrip().splitlines()
    left_out = len(lines) - FIRST_LINES - LAST_LINES
    if left_out > 1:
        lines[FIRST_LINES:-LAST_LINES] = [f"  ... {left_out} lines ..."]
    return "\n".join(fit(line[: columns + 1], columns) for line in lines)
