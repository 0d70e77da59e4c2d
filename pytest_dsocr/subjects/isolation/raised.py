"""What was raised in the subject's process, or how that ended, told as errors here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_dsocr.foundation.errors import DsocrError, MachineError
from pytest_dsocr.observation.level import SubjectFaultError
from pytest_dsocr.subjects.isolation.process import ProcessLostError


class InItsProcess(Exception):  # noqa: N818 - stands for what was raised there
    """What happened in the subject's process, as it was told there."""


class NotImplementedThere(InItsProcess, NotImplementedError):  # noqa: N818
    """The subject does not do that."""


class MachineErrorThere(InItsProcess, MachineError):  # noqa: N818
    """What happened there is the machine's fault."""


class LostError(Exception):
    """A process that was lost, and what is known of it."""

    def __init__(self, lost: ProcessLostError, limit_s: float) -> None:
        super().__init__(lost.how)
        self.how, self.is_hung = lost.how, lost.is_hung
        self.told = f"it took more than {limit_s:g} s" if lost.is_hung else f"it {lost.how}"
        self.cause = InItsProcess(f"the end of what it said:\n{lost.trace}") if lost.trace else None


def raised(refusal: Mapping[str, Any]) -> DsocrError:
    """Rebuild the error that was raised in the process, with its cause."""
    stage, message = refusal["stage"], refusal["message"]
    is_of_machine = refusal["is_of_machine"]
    if stage:
        error: DsocrError = SubjectFaultError(stage, message)
    else:
        error = MachineError(message) if is_of_machine else DsocrError(message)
    if refusal["trace"]:
        kind = NotImplementedThere if refusal["is_not_implemented"] else InItsProcess
        error.__cause__ = (MachineErrorThere if is_of_machine else kind)(refusal["trace"])
    return error
