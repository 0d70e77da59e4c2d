"""Recordings where they hold a case, else the session: a reference for users without the vendor's files.

The session is proven equal to the vendor's code where that was recorded, and its answers say that they are the
session's. It runs in a process of its own: what a subject does to torch, or to the engine, does not reach it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import InputsDigest, Observation
from pytest_dsocr.observation.provenance import DTYPES_OF_VENDOR, OF_VENDOR, Provenance, is_by_session
from pytest_dsocr.reference.live.reference import LiveReference
from pytest_dsocr.reference.opening import Wanted, open_recorded
from pytest_dsocr.reference.protocol import NoRecordingError, NotRecordedError, Reference
from pytest_dsocr.reference.recorded.recording import RecordedReference
from pytest_dsocr.session_reference.runtime import SessionRuntime, provenance_of
from pytest_dsocr.subjects.loading import SESSION
from pytest_dsocr.subjects.session import SessionSubject, session_subject

RUNTIME = f"{SessionRuntime.__module__}:{SessionRuntime.__qualname__}"
"""What answers in the worker."""
SESSION_NAMES = (SESSION, f"{session_subject.__module__}:{session_subject.__qualname__}")
"""Under which a run may name the session as its subject."""


class SessionReference:
    """Fulfils :class:`~pytest_dsocr.reference.protocol.Reference`; the session's process starts with the first request.

    Args:
        wanted: the checkpoint, and the device, dtype and attention that the session computes with.
        recorded: answers for the cases that it holds; None where no recording has this key.
        time_limit_s: the longest that the session may be without a sign of progress.

    Raises:
        DsocrError: where the vendor's code has no such dtype or attention, so that nothing proves the session equal.
    """

    def __init__(self, wanted: Wanted, recorded: RecordedReference | None = None, *, time_limit_s: float = 600) -> None:
        _check("dtype", wanted.dtype, DTYPES_OF_VENDOR)
        _check("attention", wanted.attention, OF_VENDOR)
        self.wanted, self.recorded = wanted, recorded
        self._session = LiveReference(
            None,
            wanted.checkpoint.name,
            python=Path(sys.executable),
            device=wanted.device,
            dtype=wanted.dtype,
            attention=wanted.attention,
            time_limit_s=time_limit_s,
            runtime=RUNTIME,
        )

    @cached_property
    def provenance(self) -> Provenance:
        """How the session's answers are made; a recorded case has its recording's."""
        key = self.wanted.key
        return provenance_of(self.wanted.checkpoint, key.device, key.dtype, key.attention)

    def inputs(self, case: Case) -> InputsDigest:
        """Give what was recorded to go into the model, or what the session makes."""
        return self.observe(case).inputs

    def observe(self, case: Case) -> Observation:
        """Give what was recorded of a case, or, where it was not, what the session does with it.

        Raises:
            ReferenceFaultError: where the session cannot answer, or the page is not the one recorded under its name.
        """
        try:
            return self.recording_of(case)
        except NotRecordedError:
            return self._session.observe(case)

    def recording_of(self, case: Case) -> Observation:
        """Give what was recorded of a case; raise ``NotRecordedError`` where that is nothing."""
        if self.recorded is None:
            raise NotRecordedError(f"no recording is of {self.wanted.key}, and so none holds {case.id}")
        return self.recorded.observe(case)

    def holds(self, case: Case) -> bool:
        """Say whether a recording answers for a case."""
        try:
            self.recording_of(case)
        except NotRecordedError:
            return False
        return True

    def answering(self, seen: Observation) -> Reference:
        """Give the reference that made ``seen``: the recording, or this one for the session."""
        return self if self.recorded is None or is_by_session(seen.provenance) else self.recorded

    def check_other_than(self, subject: object, name: str, case: Case) -> None:
        """Refuse to compare the session with itself, which would prove nothing.

        Args:
            subject: the implementation under test.
            name: what the run calls it.
            case: the case to read.

        Raises:
            NotRecordedError: where the subject is the session, and no recording answers for the case.
        """
        try:
            self.recording_of(case)
        except NotRecordedError as error:
            if name not in SESSION_NAMES and not _is_session(subject):
                return
            raise NotRecordedError(
                f"{error}; the session is the subject itself, so it cannot be the reference as well"
            ) from None

    def stage_times(self, case: Case, turns: int = 5) -> Mapping[str, tuple[float, ...]]:
        """Raise ``NotRecordedError``: the session's times say nothing of the vendor's."""
        raise NotRecordedError("the session's times are not the vendor's; give the vendor's folder to take them live")

    def flops(self, case: Case) -> Mapping[str, int]:
        """Give what was recorded; raise ``NotRecordedError`` where that is nothing."""
        if self.recorded is None:
            raise NotRecordedError("the session's FLOPs are not the vendor's; give the vendor's folder to count them")
        return self.recorded.flops(case)

    def close(self) -> None:
        """End the session's process, where it was started."""
        self._session.close()


def open_session_reference(places: Sequence[Path], wanted: Wanted, *, time_limit_s: float = 600) -> SessionReference:
    """Open the session as the reference, behind whatever recording there is of the key.

    Args:
        places: folders of recordings, as they are looked into.
        wanted: the checkpoint and key.
        time_limit_s: the longest that the session may be without a sign of progress.

    Raises:
        DsocrError: where the vendor's code has no such dtype or attention.
        ReferenceFaultError: where the recording is damaged: the session does not answer for what should be there.
    """
    try:
        recorded = open_recorded(places, wanted)
    except NoRecordingError:
        recorded = None
    return SessionReference(wanted, recorded, time_limit_s=time_limit_s)


def _check(what: str, given: str, valid: tuple[str, ...]) -> None:
    if given not in valid:
        raise DsocrError(
            f"the session is proven equal to the vendor's code in {what} {' and '.join(valid)}, and not in {given}; "
            f"choose one for the reference: --dsocr-reference-{what}={valid[0]}"
        )


def _is_session(subject: object) -> bool:
    """Say whether it is the shipped one; a class derived from it, or the vendor's model behind it, is another."""
    return type(subject) is SessionSubject and isinstance(subject.session.model, DeepseekOCR)
