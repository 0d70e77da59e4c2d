"""Whether a page can be judged in float16: the vendor's arithmetic stays in range there, or the subject is right."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from torch import OutOfMemoryError, Tensor

from pytest_dsocr.base.errors import MachineError
from pytest_dsocr.compare.case import CaseReport, Explanation
from pytest_dsocr.compare.observations import STAGES
from pytest_dsocr.compare.seams import compare_seam
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.explain.overflow import LARGEST, Overflow, WatchedPage, place_of, watched_page
from pytest_dsocr.explain.rounding import Rounder
from pytest_dsocr.models import STAGES as OF_MODEL
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Level, NotOfferedError, SubjectFaultError
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.reference_result import Seam
from pytest_dsocr.records.subject_result import HALF
from pytest_dsocr.reference.engine import EngineReference
from pytest_dsocr.reference.protocol import Reference, ReferenceFaultError
from pytest_dsocr.subjects.calls import current
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.engine import EngineSubject

UNSEEN = WatchedPage(None, {}, {})


@dataclass(eq=False)
class HalfRange:
    """Range of float16 on a run's pages, in the vendor's arithmetic and in the subject's."""

    checkpoint: str
    rounder: Rounder
    """Has the engine in float16 and in float32."""
    _refused: dict[str, tuple[object, ReferenceFaultError]] = field(default_factory=dict)
    """Subject and error by page, so that later tests of the page need not compute it again."""
    _seen: dict[tuple[str, Sequence[int]], WatchedPage] = field(default_factory=dict)

    def of_vendor(self, case: Case, tokens: Sequence[int] = ()) -> WatchedPage:
        """Return the page in the vendor's arithmetic in float16, with steps along ``tokens``, without its tensors."""
        if (key := (case.id, tokens)) not in self._seen:
            try:
                page = _by_engine(self.rounder.vendor, case, tokens)
            except (MachineError, OutOfMemoryError) as error:
                current().note(f"the range of {HALF} was not checked on {case.id}: {str(error).splitlines()[0]}")
                page = UNSEEN
            self._seen[key] = WatchedPage(page.overflow, page.reaches, {})
        return self._seen[key]

    def check_page(self, case: Case, subject: Any, reference_dtype: str) -> None:
        """Check that a page can be judged, before a test runs.

        Args:
            subject: one below L2 is judged case by case, by its text.
            reference_dtype: dtype of the engine as the reference; empty for any other reference.

        Raises:
            ReferenceFaultError: if the vendor's arithmetic overflows, and the subject is not right there either.
        """
        overflow, asked = self.of_vendor(case).overflow, CheckedSubject(subject)
        if overflow is None or (reference_dtype != HALF and asked.level < Level.STAGES):
            return
        with suppress(NotOfferedError, SubjectFaultError):  # the tests report it
            if reference_dtype != HALF and self._is_right(case, asked, overflow):
                return
            raise self._unjudged(case, subject, overflow)

    def check_reference(self, case: Case, subject: object, reference: Reference) -> None:
        """Raise ``ReferenceFaultError`` if the page was refused, or the engine would compute it beyond the range."""
        refused, error = self._refused.get(case.id, (None, None))
        if error and refused is subject:
            raise error
        is_asked = isinstance(reference, EngineReference) and not reference.holds(case)
        if is_asked and reference.provenance.dtype == HALF and (overflow := self.of_vendor(case).overflow):
            raise self._unjudged(case, subject, overflow)

    def check_report(self, report: CaseReport, subject: object) -> None:
        """Raise ``ReferenceFaultError`` if a case fails at the stage where the vendor's arithmetic overflows.

        It fails there as well if it fails later, and this stage was not compared.
        """
        overflow, first = self.of_vendor(report.case, _spoilt_after(report)).overflow, report.divergence
        if overflow is None or first is None or _place(first.scene.first.stage) < _place(overflow.stage):
            return
        made = [one for one in report.of(overflow.stage) if one.verdict is not Verdict.NOT_COMPARED]
        if not made or not all(one.passes for one in made):
            raise self._unjudged(report.case, subject, overflow)

    def _unjudged(self, case: Case, subject: object, overflow: Overflow) -> ReferenceFaultError:
        """Return the error that says why a page cannot be judged."""
        error = ReferenceFaultError(
            f"{self.checkpoint} cannot be judged in {HALF}: the vendor's arithmetic overflows on {case.id}, where "
            f"{overflow}; run both in bfloat16 or float32, or compute this in float32 and compare with a recording"
        )
        self._refused[case.id] = subject, error
        return error

    def explained(self, report: CaseReport, subject: Any) -> Explanation | None:
        """Return the explanation of a failure by an overflow of the subject; None if it has none before it."""
        answer, first = report.exchange.answer, report.divergence
        tokens = _spoilt_after(report)
        vendor = self.of_vendor(report.case, tokens)
        if first is None or answer.input_tensors is None or answer.level < Level.STAGES or vendor.overflow:
            return None
        asked, what = CheckedSubject(subject), first.first.what
        try:
            found = watched_page(asked, answer.input_tensors, model_of(self.rounder.vendor), tokens).overflow
        except SubjectFaultError:
            return None
        if found and _place(found.stage) <= _place(first.first.stage):
            return _by_overflow(what, f"{found}", found.operation, _reached(vendor, found.place))
        spoilt = next((name for name, seam in answer.seams.items() if seam.not_finite), "")
        if not spoilt or _place(TensorName.parse(spoilt).stage) > _place(first.first.stage):
            return None
        place = _in_words(TensorName.parse(spoilt))
        return _by_overflow(what, f"{spoilt} has {answer.seams[spoilt].not_finite}", place, _reached(vendor, place))

    def _is_right(self, case: Case, asked: CheckedSubject, overflow: Overflow) -> bool:
        """Return whether the subject's tensors of the stage, or all if it gives none, are those of float32."""
        names_of = model_of(self.rounder.truth)
        own = watched_page(asked, asked.inputs(case), names_of).seams
        truth = _by_engine(self.rounder.truth, case).seams
        names = [name for name in own if TensorName.parse(name).stage == overflow.stage] or [*own]
        return all(_agrees(name, own, truth) for name in names)


def _spoilt_after(report: CaseReport) -> tuple[int, ...]:
    """Return the reference's tokens before the subject's first step that is not finite; none if all are finite."""
    steps = report.exchange.answer.forced or ()
    return report.exchange.expected.token_ids[: next((k for k, step in enumerate(steps) if step.not_finite), 0)]


def _by_engine(engine: Engine[Any], case: Case, tokens: Sequence[int] = ()) -> WatchedPage:
    asked = CheckedSubject(EngineSubject(engine))
    return watched_page(asked, asked.inputs(case), model_of(engine), tokens)


def _agrees(name: str, actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> bool:
    own, truth = (Seam.of(one[name].float(), keep_values=True) if name in one else None for one in (actual, expected))
    return compare_seam(name, own, truth, tolerances(HALF).of_seam(name)).verdict is not Verdict.WRONG


def _by_overflow(what: str, overflow: str, check: str, reached: str) -> Explanation:
    text = f"by an overflow of the subject: {overflow}; the vendor's arithmetic {reached}"
    return Explanation(text, what, advice=f"compute {check!r} there in float32, or scale it as the vendor does")


def _reached(vendor: WatchedPage, place: str) -> str:
    """Return the largest value of the vendor's arithmetic at a place, or at all if it has no such place."""
    at = [value for name, value in vendor.reaches.items() if name.startswith(place)]
    return f"reaches {max(at):.1e} there, below {LARGEST:.0f}" if at else f"stays below {LARGEST:.0f} everywhere"


def _in_words(name: TensorName) -> str:
    """Return the place of a tensor's stage or block in words."""
    stage = next((one for one in OF_MODEL if one.name == name.stage), None)
    path = f"{stage.blocks}.{name.block}" if stage and name.block is not None else stage.module if stage else ""
    return place_of(path)[1] if path else str(name)


def _place(stage: str) -> int:
    return STAGES.index(stage) if stage in STAGES else len(STAGES)
