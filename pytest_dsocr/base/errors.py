"""Errors: the exception for bad input, the test for a fault of the machine, and messages that are safe to print."""

import errno
import os
import sys
import traceback
from collections.abc import Iterator, Mapping

from pytest_dsocr.base.words import PACKAGE, fit, printable

FULL_OR_BROKEN = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENOMEM))
"""Numbers of an ``OSError`` that mean a full, broken or read-only disk, or too little memory."""
LOST_GPU = frozenset((2, 3, 35, 46, 100, 101, 214, 220, 800, 802, 803))
"""Numbers of CUDA errors that mean too little memory, no device or driver, a device in use, or broken hardware."""
ENDS_CUDA: Mapping[int, str] = {
    700: "an illegal memory access was encountered",
    702: "the launch timed out and was terminated",
    709: "context is destroyed",
    710: "device-side assert triggered",
    714: "hardware stack error",
    715: "an illegal instruction was encountered",
    716: "misaligned address",
    717: "operation not supported on global/shared address space",
    718: "invalid program counter",
    719: "unspecified launch failure",
}
"""CUDA errors after which each use of CUDA in the same process fails, with the runtime's texts."""

LONGEST = 10_000
"""Most characters of a message. It may quote a damaged file."""


class DsocrError(Exception):
    """Bad input, or a machine that lacks what was asked for.

    The message is one sentence: the fault, then what to do about it. Names of files and quoted texts in it are escaped,
    so they cannot control the terminal.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return printable(text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}")


class MachineError(DsocrError):
    """Fault of the machine, not of the subject: weights, a GPU or a reference are missing or unusable.

    A subject may raise it as well.
    """


def is_of_machine(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes is a fault of the machine, judged by type and number only."""
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


def has_ended_cuda(error: BaseException | None) -> bool:
    """Return whether an error, or one that it came from, ended CUDA for this process.

    The number tells, or the text of a ``RuntimeError`` without one, as torch before 2.8 and other libraries raise it.
    """
    return any(map(_ends_cuda, _causes(error, handled=True)))


def _ends_cuda(error: BaseException) -> bool:
    if not isinstance(error, RuntimeError):
        return False
    number, message = getattr(error, "error_code", None), message_of(error)
    is_told = "cuda" in message.lower() and any(text in message for text in ENDS_CUDA.values())
    return number in ENDS_CUDA if number is not None else is_told


def _causes(error: BaseException | None, *, handled: bool = False) -> Iterator[BaseException]:
    """Yield an error and its causes, if ``handled`` also those that it was raised in the handling of."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (error.__context__ if handled else None)


FIRST_LINES, LAST_LINES, COLUMNS = 15, 45, 300
OF_MESSAGE = 2000
"""Columns of a message of this project. It is one line, and its end says what to do."""


def message_of(error: BaseException) -> str:
    """Return an error's message, or its type if the message cannot be made."""
    try:
        return str(error)
    except Exception:
        return f"{type(error).__name__}, whose message cannot be shown"


def traced(error: BaseException) -> str:
    """Return an error's traceback with its causes, and with short paths inside this package.

    If the traceback cannot be formatted, return the error's type.
    """
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # its notes or its causes may be anything
        text = f"{type(error).__name__}, whose traceback cannot be shown"
    return bounded(text.replace(f'"{PACKAGE}{os.sep}', '"'))


def bounded(text: str, columns: int = COLUMNS) -> str:
    """Return ``text`` with control characters escaped, and shortened if it is too long."""
    lines = text.rstrip().splitlines()
    left_out = len(lines) - FIRST_LINES - LAST_LINES
    if left_out > 1:
        lines[FIRST_LINES:-LAST_LINES] = [f"  ... {left_out} lines ..."]
    return "\n".join(fit(line[: columns + 1], columns) for line in lines)
