"""The engine in place of the vendor's code, for users without the vendor's files; recordings come first.

The engine is proven equal to the vendor's code where that was recorded, and its answers say that they are the
engine's. It runs in a process of its own: what a subject does to torch, or to the engine, does not reach it.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import Any, Self

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.artifacts import OURS
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.model import EngineModel
from pytest_dsocr.engine.result import PageResult
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.packing import without_values
from pytest_dsocr.records.provenance import (
    DTYPES_OF_VENDOR,
    ENGINE_STANDS_IN,
    OF_VENDOR,
    Provenance,
    device_class,
    is_by_engine,
)
from pytest_dsocr.records.reference_result import Best, InputsDigest, Output, ReferenceResult, Step
from pytest_dsocr.records.subject_result import SubjectResult
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.opening import WantedReference, open_recorded
from pytest_dsocr.reference.protocol import NoRecordingError, NotRecordedError, OnProgress, Reference, provenance_of
from pytest_dsocr.reference.recording import RecordedReference
from pytest_dsocr.subjects.engine import EngineSubject, engine_subject
from pytest_dsocr.subjects.follow import run_teacher_forced
from pytest_dsocr.subjects.loading import ENGINE

NOTHING = Best((), ())
OF_ENGINE: Mapping[str, Any] = {"vendor_sha256": {}, "overrides": (ENGINE_STANDS_IN,)}
"""What the provenance of all that it answers says."""


@dataclass(frozen=True)
class EngineRuntime:
    """An engine, ready for cases; answers as :class:`~pytest_dsocr.reference.vendor_code.runtime.VendorRuntime` does.

    It reads freely, then is followed along its own tokens, as any subject is along the reference's.
    """

    subject: EngineSubject
    provenance: Provenance
    on_progress: OnProgress

    @classmethod
    def load(
        cls,
        checkpoint: str,
        *,
        device: str = "cpu",
        dtype: str = "float32",
        attention: str = "eager",
        command: str = "",
        on_progress: OnProgress = lambda what, done, total: None,
    ) -> Self:
        """Load ``checkpoint`` into the engine's model; raise ``DsocrError`` where any of these is not available."""
        weights = partial(on_progress, "weights")
        engine = Engine.from_checkpoint(
            checkpoint, device=device, dtype=dtype, attention=attention, on_progress=weights
        )
        made = provenance_of(resolve(checkpoint), device_class(device), dtype, attention, command, **OF_ENGINE)
        return cls(EngineSubject(engine), made, on_progress)

    def observe(self, case: Case, *, keep_values: bool = False) -> ReferenceResult:
        """Read the page and give all that was seen, the tensors too where ``keep_values``, but those of deep seams.

        Raises:
            DsocrError: where reading and decoding step by step differ, so that it cannot serve as a reference.
        """
        engine, tokens = self.subject.engine, count(1)
        prepared = engine.prepare(case.page, prompt=case.prompt, preset=case.preset)
        read = engine.run_prepared(
            prepared, max_new_tokens=case.max_new_tokens, on_token=lambda _: self._token(next(tokens), case)
        )
        answer = run_teacher_forced(
            self.subject, case, _to_follow(case, prepared, read), lambda step: self._token(step, case)
        )
        seen = _observation(case, answer, read, self.provenance)
        return seen if keep_values else without_values(seen)

    def _token(self, number: int, case: Case) -> None:
        self.on_progress("token", number, case.max_new_tokens)


def _to_follow(case: Case, prepared: Inputs, read: PageResult) -> ReferenceResult:
    """Return what ``run_teacher_forced`` needs from a reference: the tokens to follow, and tensors to keep."""
    steps = tuple(Step(token, Best((token,), (0.0,))) for token in read.token_ids)
    inputs = InputsDigest.of(prepared.tensors, keep_values=True)
    return ReferenceResult(case.id, inputs, {}, NOTHING, steps, Output(read.text, (), "", {}))


def _observation(case: Case, answer: SubjectResult, read: PageResult, provenance: Provenance) -> ReferenceResult:
    chosen = tuple(step.token for step in answer.forced or ())
    if chosen != read.token_ids or answer.text != read.text:
        raise DsocrError(
            f"the engine read {len(read.token_ids)} tokens of {case.id} differently than it decodes them step by "
            "step; it cannot stand in on this device"
        )
    values: dict[str, Any] = {"inputs": answer.inputs, "prefill_best": answer.prefill_best}
    files = {name: file for name, file in (answer.artefacts or {}).items() if name != OURS}
    written: dict[str, Any] = {"mmd": answer.mmd, "artefacts": files or None}
    if absent := [name for name, value in {**values, **written}.items() if value is None]:
        raise DsocrError(f"the engine gave no {', '.join(absent)} of {case.id}; it cannot stand in")
    return ReferenceResult(
        case_id=case.id,
        seams=answer.seams,
        steps=tuple(Step(step.token, step.best) for step in answer.forced or ()),
        output=Output(answer.text, answer.spans, **written),
        provenance=provenance,
        **values,
    )


RUNTIME = f"{EngineRuntime.__module__}:{EngineRuntime.__qualname__}"
"""What answers in the worker."""
ENGINE_NAMES = (ENGINE, f"{engine_subject.__module__}:{engine_subject.__qualname__}")
"""Under which a run may name the engine as its subject."""


class EngineReference:
    """Fulfils :class:`~pytest_dsocr.reference.protocol.Reference`; the engine's process starts with the first request.

    Args:
        wanted: the checkpoint, and the device, dtype and attention that the engine computes with.
        recorded: answers for the cases that it holds; None where no recording has this key.
        limits: how long the engine may take, ``time_limit_s`` and ``start_limit_s`` of :class:`LiveReference`.

    Raises:
        DsocrError: where the vendor's code has no such dtype or attention, so that nothing proves the engine equal.
    """

    def __init__(self, wanted: WantedReference, recorded: RecordedReference | None = None, **limits: float) -> None:
        _check("dtype", wanted.dtype, DTYPES_OF_VENDOR)
        _check("attention", wanted.attention, OF_VENDOR)
        self.wanted, self.recorded = wanted, recorded
        self._engine = LiveReference(
            None,
            wanted.checkpoint.name,
            python=Path(sys.executable),
            device=wanted.device,
            dtype=wanted.dtype,
            attention=wanted.attention,
            runtime=RUNTIME,
            **limits,  # type: ignore[arg-type]
        )

    @cached_property
    def provenance(self) -> Provenance:
        """How the engine's answers are made; a recorded case has its recording's."""
        key = self.wanted.key
        return provenance_of(self.wanted.checkpoint, key.device, key.dtype, key.attention, "", **OF_ENGINE)

    def observe(self, case: Case) -> ReferenceResult:
        """Return what was recorded of a case, or, where it was not, what the engine does with it.

        Raises:
            ReferenceFaultError: where the engine cannot answer, or the page is not the one recorded under its name.
        """
        try:
            return self.recording_of(case)
        except NotRecordedError:
            return self._engine.observe(case)

    def recording_of(self, case: Case) -> ReferenceResult:
        """Return what was recorded of a case; raise ``NotRecordedError`` where that is nothing."""
        if self.recorded is None:
            raise NotRecordedError(f"no recording is of {self.wanted.key}, and so none holds {case.id}")
        return self.recorded.observe(case)

    def holds(self, case: Case) -> bool:
        """Return whether a recording answers for a case."""
        with suppress(NotRecordedError):
            return bool(self.recording_of(case))
        return False

    def answering(self, seen: ReferenceResult) -> Reference:
        """Return the reference that made ``seen``: the recording, or this one for the engine."""
        return self if self.recorded is None or is_by_engine(seen.provenance) else self.recorded

    def check_other_than(self, subject: object, name: str, case: Case) -> None:
        """Raise ``NotRecordedError`` where it would answer for the engine itself, which would prove nothing.

        Args:
            subject: the implementation under test.
            name: what the run calls it.
            case: the case to read.
        """
        try:
            self.recording_of(case)
        except NotRecordedError as error:
            if name in ENGINE_NAMES or _is_engine(subject):
                why = "the engine is the subject itself, so it cannot be the reference as well"
                raise NotRecordedError(f"{error}; {why}") from None

    def close(self) -> None:
        """End the engine's process, where it was started."""
        self._engine.close()


def open_engine_reference(places: Sequence[Path], wanted: WantedReference, **limits: float) -> EngineReference:
    """Open the engine as the reference, behind whatever recording there is of the key in ``places``.

    Raises:
        DsocrError: where the vendor's code has no such dtype or attention.
        ReferenceFaultError: where the recording is damaged: the engine does not answer for what should be there.
    """
    try:
        recorded = open_recorded(places, wanted)
    except NoRecordingError:
        recorded = None
    return EngineReference(wanted, recorded, **limits)


def _check(what: str, given: str, valid: tuple[str, ...]) -> None:
    if given not in valid:
        raise DsocrError(
            f"the engine is proven equal to the vendor's code in {what} {' and '.join(valid)}, and not in {given}; "
            f"choose one for the reference: --dsocr-reference-{what}={valid[0]}"
        )


def _is_engine(subject: object) -> bool:
    """Return whether it is the shipped one; a class derived from it, or the vendor's model behind it, is another."""
    return type(subject) is EngineSubject and isinstance(subject.engine.model, EngineModel)
