"""Comparison of subject and reference on the second checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import Comparison, Symptom, Verdict
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.explain.parts import parts_of
from pytest_dsocr.explain.rounding import Rounder
from pytest_dsocr.models.spec import PREFILL, ModelSpec
from pytest_dsocr.records.case import make_case
from pytest_dsocr.records.config import Config
from pytest_dsocr.reference.goldens import recording_places
from pytest_dsocr.reference.opening import WantedReference, open_recorded
from pytest_dsocr.reference.protocol import Reference
from pytest_dsocr.run.limits import limits_of
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.run.sides import compare_sides
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.loading import adapter_of, close_subject, open_subject
from pytest_dsocr.subjects.protocol import NotOfferedError

from ..contract.pages import write_page
from .made import CEILING, DECODER, NAME, PAGES, PROMPT, write_awkward

IN_BFLOAT16 = {"seam": 2e-2}
FIRST_LAYER, OF_FIRST_LAYER = "prefill/0", {"seam": 5e-4}
"""Limits in bfloat16, for a decoder that gets the same bits on both sides.

Correct variants differ by up to 2e-5 at the first layer, which has no attention, and by 1.3e-2 after it. They use AVX2,
AVX-512 with and without bf16 products, no oneDNN, or torch's fused attention. Mistakes after the first layer cause
3.6e-2 (router in bfloat16) or 5.6e-2 (positions in bfloat16).

Three changes exceed the limit of the first layer. Norms in bfloat16 and other epsilons have 1.01 to 1.18 times the
vendor's error against float32. Norms in float64 have 0.975 times that error: more exact is not wrong.
"""
MORE_EXACT = "nearer to float32 than the vendor's kernels"


@dataclass(frozen=True)
class Second:
    """Second checkpoint in a folder, for the subject of a run."""

    config: Config
    """Config of the run."""
    first: Any
    """Subject with the run's own checkpoint."""
    folder: Path
    family: ModelSpec

    @classmethod
    def written(cls, config: Config, subject: Any, folder: Path) -> Second:
        """Write checkpoint and pages into ``folder``."""
        family = family_named(config.checkpoint)
        write_awkward(folder / NAME, family)
        for page in PAGES[family.quickest.name].values():
            write_page(page, folder)
        return cls(config, subject, folder, family)

    def config_in(self, dtype: str) -> Config:
        """Return the run's config with this checkpoint, a dtype, and no pictures."""
        return replace(self.config, checkpoint=str(self.folder / NAME), dtype=dtype, reference_dtype=dtype, out=None)

    def reference(self, dtype: str) -> Reference:
        """Return the recording of the vendor's code with this checkpoint."""
        wanted = WantedReference(resolve(self.folder / NAME), "cpu", dtype)
        return open_recorded(recording_places(self.config.golden), wanted)

    def report(self, dtype: str, reference: Reference) -> CaseReport:
        """Run both sides, and compare them.

        Raises:
            NotOfferedError: if the subject accepts no other checkpoint, or does not compute in ``dtype``.
        """
        own = self.config_in(dtype)
        self._check_offered(own)
        preset = self.family.quickest
        page = self.folder / f"{PAGES[preset.name][dtype]}.png"
        case = make_case(page, PROMPT, preset, CEILING, family=self.family)
        is_half = dtype == "bfloat16"
        with _loaded(own) as subject, closing(RunResources.of(own)) as resources:
            limits = limits_of(own, subject, reference, resources.key)
            limits = limits.but({**IN_BFLOAT16, **own.tolerances}) if is_half else limits
            report = compare_sides(case, subject, reference, resources, limits, always_read=True)
            _check_width(report)
            report = _tightened(report, own, subject) if is_half else report
            explanation = resources.explainer.explain(report) if report.divergence else None
            return replace(report, exchange=replace(report.exchange, explanation=explanation))

    def _check_offered(self, own: Config) -> None:
        adapter = adapter_of(own.subject)
        if adapter and adapter.OWN_PROCESS:
            raise NotOfferedError("not offered: another checkpoint; a command or a server has its own")
        if own.dtype not in ("float32", *CheckedSubject(self.first).dtypes):
            raise NotOfferedError(f"not offered: {own.dtype} on a CPU; the subject's dtypes do not name it")


def _check_width(report: CaseReport) -> None:
    """Raise ``DsocrError`` if the features have another checkpoint's number of channels."""
    features = report.exchange.answer.seams.get("vision_fusion")
    if features and features.shape[-1] != DECODER.hidden_size:
        raise DsocrError(
            f"the subject's features have {features.shape[-1]} channels; expected {DECODER.hidden_size}, as in the "
            "checkpoint that Setup names; load what Setup names, or raise NotImplementedError for every checkpoint "
            "that is not built in"
        )


def _tightened(report: CaseReport, own: Config, subject: Any) -> CaseReport:
    """Compare the first layer by its own limit, which only a more exact one may exceed."""
    limits: Tolerances = report.limits.but({**OF_FIRST_LAYER, **own.tolerances})
    first = {one.what: one for one in judge(report.exchange, limits).of("prefill") if one.what == FIRST_LAYER}
    for what, one in first.items():
        is_comparable = Symptom.OTHER_SHAPE not in one.signs
        if one.verdict is Verdict.WRONG and is_comparable and _is_more_exact(report, own, subject):
            first[what] = replace(one, verdict=Verdict.DRIFT, measured=f"{one.measured}; {MORE_EXACT}")
    comparisons: list[Comparison] = [first.get(one.what, one) for one in report.comparisons]
    return replace(report, comparisons=tuple(comparisons))


def _is_more_exact(report: CaseReport, own: Config, subject: Any) -> bool:
    """Return whether the first layer is nearer to float32 than the vendor's kernels on the same input."""
    rounder, tensors = Rounder(own.setup, 0), report.exchange.answer.input_tensors
    parts = parts_of(CheckedSubject(subject), tensors) if tensors else ()
    for part in (one for one in parts if (one.stage, one.depth) == (PREFILL, 0)):
        truth = part.compute(rounder.truth, wide=True)
        actual, vendors = (float((one - truth).norm()) for one in (part.gave, part.compute(rounder.vendor)))
        return actual <= vendors
    return False


@contextmanager
def _loaded(own: Config) -> Iterator[Any]:
    """Load the subject; a factory that raises ``NotImplementedError`` does not offer this checkpoint or dtype."""
    try:
        limit_s = own.subject_time_limit if own.isolate else None
        subject = open_subject(own.subject, own.setup, limit_s, own.start_limit)
    except DsocrError as error:
        if isinstance(error.__cause__, NotImplementedError):
            raise NotOfferedError(f"not offered: another checkpoint or dtype ({error.__cause__})") from error
        raise
    try:
        yield subject
    finally:
        close_subject(subject)
