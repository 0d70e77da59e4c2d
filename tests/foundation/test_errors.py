"""Which errors are the machine's: by types and numbers, through every cause, and never by their text."""

from __future__ import annotations

import errno

import pytest
import torch

from pytest_dsocr.foundation.errors import DsocrError, MachineError, is_of_machine


def accelerator(code: int) -> torch.AcceleratorError:
    error = torch.AcceleratorError("CUDA error")
    vars(error)["error_code"] = code
    return error


@pytest.mark.parametrize(
    ("error", "of_machine"),
    [
        (MachineError("no weights"), True),
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (accelerator(46), True),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (DsocrError("No space left on device"), False),
        (RuntimeError("CUDA out of memory"), False),
        (accelerator(700), False),  # an illegal address is the kernel's own doing
        (FileNotFoundError(errno.ENOENT, "gone"), False),
        (None, False),
    ],
    ids=repr,
)
def test_only_types_and_numbers_tell(error: BaseException | None, of_machine: bool) -> None:
    assert is_of_machine(error) is of_machine


def test_an_error_is_the_machines_where_one_that_it_came_from_is() -> None:
    outer, middle = DsocrError("the subject's read raised"), RuntimeError("no tensor")
    outer.__cause__, middle.__cause__ = middle, MemoryError()
    assert is_of_machine(outer)
    middle.__cause__ = outer  # a ring ends
    assert not is_of_machine(outer)
