"""The session as a reference, in the process of its worker: what it does with a case, in the form of the vendor's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NoReturn, Self

from pytest_dsocr.contract.artifacts import OURS
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine.checkpoint import Checkpoint, resolve
from pytest_dsocr.engine.result import Result
from pytest_dsocr.engine.session import Session
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.answer import Answer
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import Best, InputsDigest, Observation, Output, Step
from pytest_dsocr.observation.packing import without_values
from pytest_dsocr.observation.provenance import SESSION_STANDS_IN, Provenance, device_class, versions
from pytest_dsocr.reference.protocol import OnProgress
from pytest_dsocr.subjects.follow import follow
from pytest_dsocr.subjects.session import SessionSubject

NOTHING = Best((), ())


@dataclass(frozen=True)
class SessionRuntime:
    """A session, ready for cases; answers as :class:`~pytest_dsocr.reference.vendor_code.runtime.VendorRuntime` does.

    It reads freely, then is followed along its own tokens, as any subject is along the reference's.
    """

    subject: SessionSubject
    origin: Provenance
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
        session = Session.from_checkpoint(
            checkpoint, device=device, dtype=dtype, attention=attention, on_progress=weights
        )
        origin = provenance_of(resolve(checkpoint), device_class(device), dtype, attention, command)
        return cls(SessionSubject(session), origin, on_progress)

    @property
    def provenance(self) -> Provenance:
        """How the answers are made."""
        return self.origin

    def inputs(self, case: Case, *, keep_values: bool = False) -> InputsDigest:
        """Give what goes into the model."""
        return InputsDigest.of(self._prepare(case).tensors, keep_values=keep_values)

    def observe(
        self, case: Case, *, keep_values: bool = False, keep_logits: bool = False, out: Path | None = None
    ) -> Observation:
        """Read the page and give all that was seen.

        Args:
            case: what to read.
            keep_values: keep the tensors themselves beside their summaries, but those of the deep seams.
            keep_logits: not available from the session.
            out: not available from the session.

        Raises:
            DsocrError: where reading and decoding step by step differ, so that it cannot serve as a reference.
        """
        if keep_logits or out:
            raise DsocrError("the session keeps neither all logits nor files; give the vendor's folder for these")
        prepared, tokens = self._prepare(case), count(1)
        read = self.subject.session.run_prepared(
            prepared, max_new_tokens=case.max_new_tokens, on_token=lambda _: self._token(next(tokens), case)
        )
        answer = follow(self.subject, case, _to_follow(case, prepared, read), lambda step: self._token(step, case))
        seen = _observation(case, answer, read, self.origin)
        return seen if keep_values else without_values(seen)

    def stage_times(self, case: Case, turns: int = 5) -> NoReturn:
        """Raise ``DsocrError``: the session's times are not the vendor's."""
        raise DsocrError("the session's times are its own; give the vendor's folder to take the vendor's")

    def flops(self, case: Case) -> NoReturn:
        """Raise ``DsocrError``."""
        raise DsocrError("the session's operations are its own; give the vendor's folder to count the vendor's")

    def _prepare(self, case: Case) -> Inputs:
        return self.subject.session.prepare(case.page, prompt=case.prompt, preset=case.preset)

    def _token(self, number: int, case: Case) -> None:
        self.on_progress("token", number, case.max_new_tokens)


def provenance_of(checkpoint: Checkpoint, device: str, dtype: str, attention: str, command: str = "") -> Provenance:
    """Give the provenance of the session's answers; ``device`` is a kind of device, such as ``nvidia-h200``."""
    return Provenance(
        checkpoint=checkpoint.label,
        checkpoint_sha256=checkpoint.sha256,
        vendor_sha256={},
        device=device,
        dtype=dtype,
        attention=attention,
        resampling=resampling(),
        versions=versions(),
        overrides=(SESSION_STANDS_IN,),
        date=datetime.now(UTC).date().isoformat(),
        command=command,
    )


def _to_follow(case: Case, prepared: Inputs, read: Result) -> Observation:
    """Give what ``follow`` needs from a reference: the tokens to follow, and tensors to keep."""
    steps = tuple(Step(token, Best((token,), (0.0,))) for token in read.token_ids)
    inputs = InputsDigest.of(prepared.tensors, keep_values=True)
    return Observation(case.id, inputs, {}, NOTHING, steps, Output(read.text, (), "", {}))


def _observation(case: Case, answer: Answer, read: Result, origin: Provenance) -> Observation:
    chosen = tuple(step.token for step in answer.forced or ())
    if chosen != read.token_ids or answer.text != read.text:
        raise DsocrError(
            f"the session read {len(read.token_ids)} tokens of {case.id} differently than it decodes them step by "
            "step; it cannot stand in on this device"
        )
    given: dict[str, Any] = {"inputs": answer.inputs, "prefill_best": answer.prefill_best}
    files = {name: file for name, file in (answer.artefacts or {}).items() if name != OURS}
    written: dict[str, Any] = {"mmd": answer.mmd, "artefacts": files or None}
    if absent := [name for name, value in {**given, **written}.items() if value is None]:
        raise DsocrError(f"the session gave no {', '.join(absent)} of {case.id}; it cannot stand in")
    return Observation(
        case_id=case.id,
        seams=answer.seams,
        steps=tuple(Step(step.token, step.best) for step in answer.forced or ()),
        output=Output(answer.text, answer.spans, **written),
        provenance=origin,
        **given,
    )
