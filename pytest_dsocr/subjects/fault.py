"""Faults of the subject: an error that it raised, or a result that cannot be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.level import SubjectFaultError, SubjectHungError
from pytest_dsocr.subjects.interrupts import hearing_interrupts
from pytest_dsocr.subjects.telling import brief
from pytest_dsocr.subjects.time_limit import Overdue
from pytest_dsocr.subjects.watch import current

Faulty = Callable[[BaseException], DsocrError]
"""Turns the subject's error into the error that is raised here."""


@contextmanager
def at_stage(stage: str, method: str) -> Iterator[None]:
    """Turn whatever the subject's ``method`` raises into a :class:`SubjectFaultError` of ``stage``.

    Every call of the subject's code goes through here: it is limited in time, and what it changes around itself is put
    back. ``KeyboardInterrupt`` passes where it is the user's.
    """

    def raised(error: BaseException) -> DsocrError:
        return SubjectFaultError(
            stage, f"the subject's {method} raised in {stage} ({brief(error)}); see the error that this one came from"
        )

    with guarded(stage, method, raised):
        yield


@contextmanager
def guarded(stage: str, method: str, raised: Faulty) -> Iterator[None]:
    """Run the subject's code, watched; ``raised`` turns its error into the one that is raised here.

    Raises:
        SubjectHungError: where its time is up.
        KeyboardInterrupt: where the user interrupts.
    """
    watch, what = current(), f"the subject's {method} in {stage}"
    kept = watch.surroundings.kept(method, quickly=stage == "decode")
    try:
        with hearing_interrupts(), kept, watch.limited(what):
            try:
                yield
            except (Overdue, SubjectFaultError):
                raise
            except BaseException as error:
                fault = raised(error)
                raise fault from (error if fault is not error else error.__cause__)
    except Overdue as overdue:
        raise hung(stage, method, watch.limit_s) from overdue


def hung(stage: str, method: str, limit_s: float) -> SubjectHungError:
    """Give the fault of a call that took too long; its cause shall be the interrupted stack."""
    return SubjectHungError(
        stage,
        f"the subject's {method} did not return in {stage} within {limit_s:g} s and was interrupted; if it was only "
        "slow, raise the limit: --dsocr-subject-time-limit=SECONDS",
    )
