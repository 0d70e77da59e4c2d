"""The one exception that this project raises on bad input, and what is a machine's fault and not a subject's."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator

from pytest_dsocr.foundation.printable import printable

FULL_OR_BROKEN = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENOMEM))
"""Of an ``OSError``: no room, a broken or a closed disk, no memory."""
LOST_GPU = frozenset((2, 3, 35, 46, 100, 101, 214, 220, 800, 802, 803))
"""Of CUDA's errors: no memory, no device or driver, a device in use, memory or NVLink that cannot be corrected."""


class DsocrError(Exception):
    """Bad input, or a machine that lacks what was asked for.

    The message is one sentence: what was wrong, then what to do about it. Names of files in it, and what others said,
    cannot steer the terminal that it is shown on.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class MachineError(DsocrError):
    """What was asked for is not there or cannot be used: weights, a GPU, a reference. It says nothing of the subject.

    A subject may raise it as well.
    """


def is_of_machine(error: BaseException | None) -> bool:
    """Say whether an error, or one that it came from, is the machine's: by its type and its number alone."""
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
