"""Errors of the subject's process, rebuilt here with their causes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.records.config import NotOfferedError, SubjectFaultError
from pytest_dsocr.subjects.isolation.transport import ProcessLostError


class InItsProcess(Exception):  # noqa: N818 - stands for what was raised there
    """Exception in the subject's process, with the traceback from there."""


class NotImplementedThere(InItsProcess, NotImplementedError):  # noqa: N818
    """The subject raised ``NotImplementedError``."""


class MachineErrorThere(InItsProcess, MachineError):  # noqa: N818
    """Error of the machine, such as too little memory, in the subject's process."""


def how_lost(lost: ProcessLostError) -> str:
    """Say how a process was lost as it started."""
    slow = f"took more than {lost.limit_s:g} s; if it was only slow, raise the limit: --dsocr-start-limit=SECONDS"
    return f"it {slow if lost.is_hung else lost.how}"


def last_output(lost: ProcessLostError) -> InItsProcess | None:
    """Return what a lost process said last, as a cause."""
    return InItsProcess(f"the end of what it said:\n{lost.trace}") if lost.trace else None


def raised(refusal: Mapping[str, Any]) -> DsocrError:
    """Rebuild the error that was raised in the process, with its cause."""
    stage, message = refusal["stage"], refusal["message"]
    is_of_machine = refusal["is_of_machine"]
    if refusal["is_not_offered"]:
        return NotOfferedError(message)
    if stage:
        error: DsocrError = SubjectFaultError(stage, message)
    else:
        error = MachineError(message) if is_of_machine else DsocrError(message)
    if refusal["trace"]:
        kind = NotImplementedThere if refusal["is_not_implemented"] else InItsProcess
        error.__cause__ = (MachineErrorThere if is_of_machine else kind)(refusal["trace"])
    return error
