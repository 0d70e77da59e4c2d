"""Results of one case, which a worker sends, the views show and ``dsocr.json`` keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from pytest_dsocr.base.errors import is_of_machine, message_of
from pytest_dsocr.base.words import printable
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.describe.description import Description
from pytest_dsocr.explain.hints import hint, hint_of_rest
from pytest_dsocr.records.page_measures import PageMeasures
from pytest_dsocr.records.provenance import is_by_engine
from pytest_dsocr.report.comparison_result import ComparisonResult, LimitsUsed, Number, OutsideLimits, of_number

if TYPE_CHECKING:
    from pytest_dsocr.compare.case import CaseReport, CaseRun, FurtherCause

Picture = Annotated[str, Meta(pattern=r"\A(pages/)?[^/\\\x00]+\Z", max_length=255)]
"""Path below the folder of the result."""
Side = Literal["reference", "subject"]


class Fault(Struct, frozen=True):
    """A subject or a reference that raised, which is no verdict."""

    case: str | None
    stage: str | None
    why: str
    infrastructure: bool
    """Whether the machine or the reference is at fault, not the subject."""

    @classmethod
    def of(cls, error: BaseException, case_id: str | None = None) -> Fault:
        """Return the fault of an error, in the stage that a ``SubjectFaultError`` names."""
        return cls(case_id, getattr(error, "stage", None), message_of(error), is_of_machine(error))


class ReadOutput(Struct, frozen=True):
    """Text and boxes that the subject read."""

    text: str
    boxes: list[list[Any]]
    """Label and four coordinates of each box, in units of 1/999 of the page."""


class Compression(Struct, frozen=True):
    """A page's compression into tokens, as the vendor counts them."""

    vision_tokens: int
    """Image tokens that show the page."""
    text_tokens: int
    """Tokens of the reference's output, markup included."""


class PageLoss(Struct, frozen=True):
    """Losses of a page if a budget is set; see :mod:`pytest_dsocr.compare.budget`."""

    lost: dict[str, Number]
    """By the names of :data:`~pytest_dsocr.compare.tolerances.LOSSES`; without what the subject does not offer."""
    allowed: dict[str, int | float]
    """The budget, of the mean over the run's pages."""
    origin: str
    """Name of the budget, and who allowed it."""
    stages: dict[str, Number]
    """Amount that each stage adds to ``kl``."""


class RepeatedReadings(Struct, frozen=True):
    """Several readings of a page."""

    after: list[str]
    """Case read before each of them; empty for none."""
    failing: list[int]
    """The wrong ones, counted from 1."""


class FurtherResult(Struct, frozen=True):
    """A cause of a case besides that of its first wrong comparison."""

    what: str
    """Comparison at which the stage is wrong on its own."""
    explained: str
    proven: bool
    mistakes: list[str]
    described: Description | None = None

    @classmethod
    def of(cls, one: FurtherCause) -> FurtherResult:
        """Return the result of a further cause."""
        found = one.explanation
        return cls(one.what, found.text, found.is_proven, [*found.mistakes], one.description)

    @property
    def said(self) -> str:
        """Cause alone if it is proven, otherwise with "perhaps" and the description."""
        named = f"{'' if self.proven else 'perhaps '}{self.explained.removeprefix('perhaps ')}"
        why = f"{named}{' (proven)' * self.proven}" if self.mistakes else ""
        if self.proven or not self.described:
            return why or self.explained
        return f"{why}; measured: {self.described.text}" if why else self.described.text


class CaseResult(Struct, kw_only=True, frozen=True):
    """A case: judged under the run's own limits by the worker, and then by its tests."""

    id: str
    place: int
    """Position among the run's cases."""
    page: str
    prompt: str
    preset: str
    verdict: Verdict
    passes: bool
    """Verdict of its tests, once they are known."""
    counts: dict[str, int]
    worst_error: Number
    first_wrong: str | None
    right_before: int
    """Number of right comparisons before the first wrong one."""
    cause: str | None
    """Hint; None if everything is right, or if ``described`` takes its place."""
    explained: str | None
    """Explanation of the first wrong comparison, or how far the search went; None if none was made."""
    described: Description | None = None
    """Measured relation of the first wrong values to the expected ones; None if none is known of their kind."""
    proven: bool
    """Whether ``explained`` is proven, so that ``cause``, a guess, need not be shown."""
    mistakes: list[str]
    """The ids of the mistakes that ``explained`` names."""
    further: list[FurtherResult] = []
    """Other causes, in the order in which to fix them. They were looked for on one page for each first stage."""
    alone: dict[str, bool] = {}
    """Stages that were given right tensors, and whether they are then right."""
    tried_on: int
    """Number of pages on which they were tried, for a text; else 0."""
    fault: Fault | None
    """Exception that kept the rest of the case from being compared."""
    findings: list[str]
    seconds: dict[Side, float]
    first_token_ms: Number
    """Milliseconds from the request to the first text; None where the subject does not stream, or did not read."""
    tokens: dict[Side, int | None]
    """None where the subject does not show its steps."""
    boxes: dict[Side, int | None]
    """None where the subject did not come to its text."""
    shapes: dict[Side, dict[str, str] | None]
    """dtype and shape of the inputs by name; None where the subject does not show them."""
    measures: PageMeasures | None = None
    """None of several pages together."""
    compression: Compression | None
    """None where the vendor counts no image tokens of such a preset, or the reference wrote nothing."""
    loss: PageLoss | None = None
    """None where no budget is set, or the subject raised."""
    readings: RepeatedReadings | None = None
    said: ReadOutput | None
    """None where the subject did not come to its text."""
    picture: Picture | None
    """The page with the boxes of both sides, relative to the folder of the JSON file."""
    by_engine: bool
    """Whether the engine stood in for the vendor's code."""
    comparisons: list[ComparisonResult]
    cost: dict[str, int] | None = None
    """The fields of :class:`pytest_dsocr.cost.model.PageCost`; None of several pages together."""
    within: bool = True
    """Whether the run's own limits allow everything."""
    outside: list[OutsideLimits] = []
    """Comparisons beyond the run's own limits, though the case passes."""
    unjudged: list[str] = []
    """WRONG comparisons that no test judged, although a test should have."""
    limits: LimitsUsed

    @property
    def why(self) -> str:
        """Hint of the first wrong comparison, or else its description."""
        return self.cause or (self.described.text if self.described else "")

    @classmethod
    def of(
        cls,
        report: CaseReport,
        *,
        place: int = 0,
        picture: str | None = None,
        cost: dict[str, int] | None = None,
        same_key: bool = False,
        on_cpu: bool = False,
    ) -> CaseResult:
        """Return the result of a case, judged under the run's own limits and not those of one test."""
        exchange, divergence, readings = report.exchange, report.divergence, report.readings
        answer, expected, explanation = exchange.answer, exchange.expected, exchange.explanation
        has_read, measures = "read" not in answer.lost, _measures(exchange)
        read = [[span.label, *map(of_number, box)] for span in answer.spans for box in span.boxes]
        return cls(
            id=report.case.id,
            place=place,
            page=report.case.page_name,
            prompt=report.case.prompt,
            preset=report.case.preset.name,
            verdict=report.verdict,
            passes=report.passes,
            counts={str(verdict): count for verdict, count in report.counts.items()},
            worst_error=of_number(report.worst_error),
            first_wrong=divergence.first.what if divergence else None,
            right_before=divergence.right if divergence else 0,
            cause=advice(report) or None,
            described=report.described,
            explained=explanation.text if explanation else None,
            proven=explanation is not None and explanation.is_proven,
            mistakes=[*explanation.mistakes] if explanation else [],
            further=[FurtherResult.of(one) for one in exchange.further],
            alone=dict(exchange.alone),
            tried_on=explanation.pages if explanation else 0,
            fault=Fault.of(report.fault, report.case.id) if report.fault else None,
            findings=[*exchange.findings],
            seconds={"reference": exchange.reference_s, "subject": exchange.subject_s},
            first_token_ms=of_number(answer.first_token_ms),
            tokens={
                "reference": len(expected.steps),
                "subject": None if answer.forced is None else len(answer.forced),
            },
            boxes={
                "reference": sum(len(span.boxes) for span in expected.output.spans),
                "subject": sum(len(span.boxes) for span in answer.spans) if has_read else None,
            },
            shapes={
                "reference": expected.inputs.shapes,
                "subject": answer.inputs.shapes if answer.inputs else None,
            },
            measures=measures,
            compression=_compression(exchange, measures),
            loss=_loss(report),
            readings=RepeatedReadings([one.after for one in readings.made], [*readings.failing]) if readings else None,
            said=ReadOutput(printable(answer.text), read) if has_read else None,
            picture=picture,
            by_engine=is_by_engine(expected.provenance),
            comparisons=[ComparisonResult.of(one) for one in report.comparisons],
            cost=cost,
            limits=LimitsUsed(report.limits.dtype, same_key, on_cpu, report.limits.by_name),
        )


def advice(report: CaseReport) -> str:
    """Return what to check first in a case; empty if nothing is wrong, or if its description says it."""
    if report.divergence is None:
        return ""
    if report.explanation and report.explanation.advice:
        return report.explanation.advice
    # they bring rapidfuzz, which a command that reads results does not need
    from pytest_dsocr.describe.texts import RULES, is_partial

    described, is_text = report.described, report.divergence.first.stage == "text"
    effect = described.kind if described is not None and described.explains else ""
    is_described = bool(effect) and (not is_text or effect in RULES)
    if is_text and is_partial(described):
        return hint_of_rest(report.divergence, report.explanation)
    family, explanation = report.case.family, report.explanation
    return hint(report.divergence, family, explanation, is_described=is_described, effect=effect)


def _loss(report: CaseReport) -> PageLoss | None:
    budget = report.limits.budget
    if not report.loss or budget is None:
        return None
    lost, stages = (
        {name: of_number(value) for name, value in of.items()} for of in (report.loss, report.exchange.stages)
    )
    return PageLoss(lost, dict(budget.allowed), budget.origin, stages)


def _measures(exchange: CaseRun) -> PageMeasures | None:
    from pytest_dsocr.contract.image import load_image
    from pytest_dsocr.contract.presets import crop_count

    case, inputs = exchange.case, exchange.expected.inputs
    if case.is_several:
        return None
    crops = sum(map(crop_count, inputs.images_spatial_crop))
    return PageMeasures(*load_image(case.page).size, crops, len(inputs.prompt_ids), len(exchange.expected.steps))


def _compression(exchange: CaseRun, page: PageMeasures | None) -> Compression | None:
    from pytest_dsocr.cost.workload import Workload, valid_image_tokens

    case, tokens = exchange.case, len(exchange.expected.steps)
    written = tokens - (tokens < case.max_new_tokens)  # the last is then the end token
    if page is None:
        return None
    shown = valid_image_tokens(Workload((page.width_px, page.height_px), case.preset, 0, tokens), case.family)
    return Compression(shown, written) if shown and written > 0 else None


def picture_name(case_id: str) -> str:
    """Name the file of a case's picture, relative to the run's folder."""
    return f"pages/{case_id}.jpg"
