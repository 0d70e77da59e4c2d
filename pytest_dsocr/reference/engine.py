"""The engine as a reference, for users without the vendor's files; recordings are preferred.

The engine was proven equal to the vendor's code on the recorded cases. Its answers are marked as the engine's. It runs
in a separate process, because a subject may change torch or the engine in its own.
"""

import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import Any, Self

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.artifacts import OURS
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine.checkpoint import Checkpoint, resolve
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
from pytest_dsocr.reference.kept import KeptAnswers
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.opening import WantedReference, open_recorded
from pytest_dsocr.reference.protocol import (
    NoRecordingError,
    NotRecordedError,
    OnProgress,
    Reference,
    ReferenceFaultError,
    provenance_of,
)
from pytest_dsocr.reference.recording import RecordedReference
from pytest_dsocr.subjects.calls import current
from pytest_dsocr.subjects.engine import EngineSubject, engine_subject
from pytest_dsocr.subjects.follow import run_teacher_forced
from pytest_dsocr.subjects.loading import ENGINE

IN_HALF = "float16: the vendor's arithmetic in a dtype that its code does not compute in"
"""Override of the engine's answers in float16."""
DTYPES_OF_ENGINE = (*DTYPES_OF_VENDOR, "float16")


@dataclass(frozen=True)
class EngineRuntime:
    """A loaded engine; the counterpart of :class:`~pytest_dsocr.reference.vendor_code.runtime.VendorRuntime`.

    It reads a page freely and is then teacher-forced along its own tokens, as a subject is along the reference's.
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
        """Load ``checkpoint``; raise ``DsocrError`` if it or the device, dtype or attention is not available."""
        engine = Engine.from_checkpoint(
            checkpoint, device=device, dtype=dtype, attention=attention, on_progress=partial(on_progress, "weights")
        )
        made = _made_by_engine(resolve(checkpoint), device_class(device), dtype, attention, command)
        return cls(EngineSubject(engine), made, on_progress)

    def observe(self, case: Case, *, keep_values: bool = False) -> ReferenceResult:
        """Read the page and return the result; with ``keep_values``, also the tensors except those of single blocks.

        Raises:
            DsocrError: if free reading and teacher-forced steps differ, which a reference must not do.
        """

        def on_token(number: int) -> None:
            self.on_progress("token", number, case.max_new_tokens)

        engine, tokens = self.subject.engine, count(1)
        prepared = engine.prepare(case.page, prompt=case.prompt, preset=case.preset)
        read = engine.run_prepared(
            prepared, max_new_tokens=case.max_new_tokens, on_token=lambda _: on_token(next(tokens))
        )
        answer = run_teacher_forced(self.subject, case, _to_follow(case, prepared, read), on_token)
        seen = _observation(case, answer, read, self.provenance)
        return seen if keep_values else without_values(seen)


def _to_follow(case: Case, prepared: Inputs, read: PageResult) -> ReferenceResult:
    """Return a reference result for ``run_teacher_forced`` with the engine's own tokens."""
    steps = tuple(Step(token, Best((token,), (0.0,))) for token in read.token_ids)
    inputs = InputsDigest.of(prepared.tensors, keep_values=True)
    return ReferenceResult(case.id, inputs, {}, Best((), ()), steps, Output(read.text, (), "", {}))


def _observation(case: Case, answer: SubjectResult, read: PageResult, provenance: Provenance) -> ReferenceResult:
    forced = answer.forced or ()
    if spoilt := next((step.not_finite for step in forced if step.not_finite), None):
        raise DsocrError(f"the engine's logits of {case.id} have {spoilt}; choose another --dsocr-reference-dtype")
    if tuple(step.token for step in forced) != read.token_ids or answer.text != read.text:
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
        steps=tuple(Step(step.token, step.best) for step in forced),
        output=Output(answer.text, answer.spans, **written),
        provenance=provenance,
        **values,
    )


ENGINE_NAMES = (ENGINE, f"{engine_subject.__module__}:{engine_subject.__qualname__}")
"""Names of the engine as a subject."""


class EngineReference:
    """Recorded cases, and the engine for all others. Its process starts with its first case, or :meth:`start_for`.

    Args:
        wanted: checkpoint, device, dtype and attention of the engine.
        recorded: recording of this key, if there is one.
        kept: folder in which the engine's answers are kept for later runs; None to keep and use none.
        limits: ``time_limit_s`` and ``start_limit_s`` of :class:`LiveReference`.

    Raises:
        DsocrError: if the vendor's code has no such dtype or attention, and thus nothing proves the engine equal.
    """

    def __init__(
        self,
        wanted: WantedReference,
        recorded: RecordedReference | None = None,
        kept: Path | None = None,
        **limits: float,
    ) -> None:
        for what, given, valid in (
            ("dtype", wanted.dtype, DTYPES_OF_ENGINE),
            ("attention", wanted.attention, OF_VENDOR),
        ):
            if given not in valid:
                raise DsocrError(
                    f"the engine is proven equal to the vendor's code in {what} {' and '.join(valid)}, and not in "
                    f"{given}; choose one for the reference: --dsocr-reference-{what}={valid[0]}"
                )
        self.wanted, self.recorded, self._folder = wanted, recorded, kept
        runtime = f"{EngineRuntime.__module__}:{EngineRuntime.__qualname__}"
        how: dict[str, Any] = {**wanted.ways, **limits, "runtime": runtime}
        self._engine = LiveReference(None, wanted.checkpoint.name, python=Path(sys.executable), **how)
        self._thread: ThreadPoolExecutor | None = None
        """The thread that talks to the engine, once it loads meanwhile."""
        self._ahead: Sequence[Case] = ()
        self._next: tuple[Case, Future[ReferenceResult]] | None = None

    @cached_property
    def provenance(self) -> Provenance:
        """Provenance of the engine's answers; a recorded case has that of its recording."""
        key = self.wanted.key
        return _made_by_engine(self.wanted.checkpoint, key.device, key.dtype, key.attention, "")

    def observe(self, case: Case) -> ReferenceResult:
        """Return the recorded result of a case, or else the engine's.

        Raises:
            ReferenceFaultError: if the engine cannot answer, or another page was recorded under this name.
        """
        try:
            return self.recording_of(case)
        except NotRecordedError:
            return self._kept_answer(case) or self._answer(case)

    def start_for(self, cases: Iterable[Case], *, ahead: bool = False) -> None:
        """Load the engine meanwhile, unless there are recordings, or all cases are kept.

        Args:
            cases: the run's, in order.
            ahead: read the case after each one while the run goes on.
        """
        missing = [case for case in cases if not (self._kept and self._kept.has(case))]
        if self.recorded is None and missing:
            self._ahead = missing if ahead else ()
            self._thread = ThreadPoolExecutor(1)
            self._thread.submit(self._start)

    def _start(self) -> None:
        with suppress(ReferenceFaultError):  # every later request fails in the same way
            self._engine.start()

    @cached_property
    def _kept(self) -> KeptAnswers | None:
        return KeptAnswers(self._folder, self.provenance, self.wanted.checkpoint.tokenizer) if self._folder else None

    def _kept_answer(self, case: Case) -> ReferenceResult | None:
        found = self._kept.find(case) if self._kept else None
        if found and found.provenance:
            made = f"answers of the engine are those of a run on {found.provenance.date}"
            current().note(f"{made}, which were kept; compute them again with --dsocr-kept-answers=off")
        return found

    def _answer(self, case: Case) -> ReferenceResult:
        answer = self._answer_in(self._thread, case) if self._thread else self._engine.observe(case)
        if self._kept:
            self._kept.keep(case, answer)
        return answer

    def _answer_in(self, thread: ThreadPoolExecutor, case: Case) -> ReferenceResult:
        """Wait for the answer to a case, and have the one after it read meanwhile."""
        known, coming = self._next or (None, None)
        own = coming if coming and known == case else thread.submit(self._engine.observe, case)
        at = self._ahead.index(case) + 1 if case in self._ahead else len(self._ahead)
        following = self._ahead[at : at + 1]
        self._next = next(((one, thread.submit(self._engine.observe, one)) for one in following), None)
        return own.result()

    def recording_of(self, case: Case) -> ReferenceResult:
        """Return the recorded result of a case; raise ``NotRecordedError`` if there is none."""
        if self.recorded is None:
            raise NotRecordedError(f"no recording is of {self.wanted.key}, and so none holds {case.id}")
        return self.recorded.observe(case)

    def holds(self, case: Case) -> bool:
        """Return whether a case is recorded."""
        with suppress(NotRecordedError):
            return bool(self.recording_of(case))
        return False

    def answering(self, seen: ReferenceResult) -> Reference:
        """Return the reference that ``seen`` comes from: the recording, or this one."""
        return self if self.recorded is None or is_by_engine(seen.provenance) else self.recorded

    def check_other_than(self, subject: object, name: str, case: Case) -> None:
        """Raise ``NotRecordedError`` if the engine would be compared with itself, which proves nothing.

        Args:
            subject: the implementation under test.
            name: its name in the run's options.
            case: the case to read.
        """
        try:
            self.recording_of(case)
        except NotRecordedError as error:
            is_engine = type(subject) is EngineSubject and isinstance(subject.engine.model, EngineModel)
            if name in ENGINE_NAMES or is_engine:  # a derived class, or the vendor's model in it, is another
                why = "the engine is the subject itself, so it cannot be the reference as well"
                raise NotRecordedError(f"{error}; {why}") from None

    def close(self) -> None:
        """End the engine's process, if it was started."""
        if self._thread:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._engine.abandon()
            self._thread.shutdown()
            self._thread = self._next = None
        self._engine.close()


def open_engine_reference(
    places: Sequence[Path], wanted: WantedReference, kept: Path | None = None, **limits: float
) -> EngineReference:
    """Open the engine as the reference, with the recording of its key in ``places`` if there is one.

    Raises:
        DsocrError: if the vendor's code has no such dtype or attention.
        ReferenceFaultError: if the recording is damaged; the engine does not replace a damaged recording.
    """
    try:
        recorded = open_recorded(places, wanted)
    except NoRecordingError:
        recorded = None
    return EngineReference(wanted, recorded, kept, **limits)


def _made_by_engine(checkpoint: Checkpoint, device: str, dtype: str, attention: str, command: str) -> Provenance:
    overrides = (ENGINE_STANDS_IN,) if dtype in DTYPES_OF_VENDOR else (ENGINE_STANDS_IN, IN_HALF)
    return provenance_of(checkpoint, device, dtype, attention, command, vendor_sha256={}, overrides=overrides)
