"""Values that a worker sends to the controller with pytest's reports: dicts, lists, strings and numbers only.

pytest-xdist carries only such values from process to process, and JSON has no word for an infinity or a NaN, so that
numbers which are none go as words.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from pytest_dsocr.base.errors import is_of_machine, message_of
from pytest_dsocr.base.files import sha256
from pytest_dsocr.base.reading import Count, Finite
from pytest_dsocr.base.words import plain, printable
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.explain.hints import hint
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.provenance import is_by_engine

if TYPE_CHECKING:
    from pytest_dsocr.compare.case import CaseReport, CaseRun
    from pytest_dsocr.records.config import Config
    from pytest_dsocr.records.subject_result import SubjectResult
    from pytest_dsocr.reference.protocol import Reference

MAY_DIFFER = (
    *("device", "explain", "given_by", "golden", "isolate", "out", "pages", "reference", "reference_device", "shard"),
    *("start_limit", "subject", "subject_time_limit", "time_limit", "vendor_env"),
)
"""Options by which machines of one run may differ, and those of which its result says more exactly what came."""
LevelWord = Annotated[str, Meta(pattern=rf"\A({'|'.join(map(str, Level))})\Z")]
Picture = Annotated[str, Meta(pattern=r"\A(pages/)?[^/\\\x00]+\Z", max_length=255)]
"""Path below the folder of the result."""
ShardText = Annotated[str, Meta(pattern=r"\A[1-9]\d{0,5}/[1-9]\d{0,5}\Z")]
"""Part of a run, such as ``1/4``."""
VerdictWord = Annotated[str, Meta(pattern=rf"\A({'|'.join(Verdict)})\Z")]
Number = float | Literal["nan", "infinite", "-infinite"] | None
"""A number, the word for one that JSON lacks, or None where there is none."""


class ComparisonPayload(TypedDict):
    """A :class:`~pytest_dsocr.compare.verdict.Comparison`."""

    what: str
    verdict: VerdictWord
    passes: bool
    measured: str
    error: Number
    details: list[str]
    reason: str | None
    """A :class:`~pytest_dsocr.compare.verdict.Reason` for what was not compared."""
    signs: list[str]
    """Members of :class:`~pytest_dsocr.compare.verdict.Symptom`, in the order of the alphabet."""
    diff: list[list[list[str]]]
    """Lines of a diff of texts. A piece is its side and its text; see :mod:`pytest_dsocr.compare.diff`."""


class SideValues(TypedDict):
    """A count or a time of each side; None where the subject does not show it."""

    reference: float
    subject: float | None


class SideSeconds(TypedDict):
    """Seconds that each side took."""

    reference: float
    subject: float


class FaultPayload(TypedDict):
    """A subject or a reference that raised, which is no verdict."""

    case: str | None
    stage: str | None
    why: str
    infrastructure: bool
    """Whether the machine or the reference is at fault, not the subject."""


class Said(TypedDict):
    """Text and boxes that the subject read."""

    text: str
    boxes: list[list[Any]]
    """Label and four coordinates of each box, in units of 1/999 of the page."""


class ShapesPayload(TypedDict):
    """dtype and shape of each side's inputs by name; None where it does not show them."""

    reference: dict[str, str]
    subject: dict[str, str] | None


class CompressionPayload(TypedDict):
    """A page's compression into tokens, as the vendor counts them."""

    vision_tokens: int
    """Image tokens that show the page."""
    text_tokens: int
    """Tokens of the reference's output, markup included."""


class LossPayload(TypedDict):
    """Losses of a page if a budget is set; see :mod:`pytest_dsocr.compare.budget`."""

    lost: dict[str, Number]
    """By the names of :data:`~pytest_dsocr.compare.tolerances.LOSSES`; without what the subject does not offer."""
    allowed: dict[str, float]
    """The budget, of the mean over the run's pages."""
    origin: str
    """Name of the budget, and who allowed it."""
    stages: dict[str, Number]
    """Amount that each stage adds to ``kl``."""


class CasePayload(TypedDict):
    """A case, judged under the run's own limits."""

    id: str
    place: int
    """Position among the run's cases."""
    page: str
    prompt: str
    preset: str
    verdict: VerdictWord
    passes: bool
    counts: dict[str, int]
    worst_error: Number
    first_wrong: str | None
    right_before: int
    """Number of right comparisons before the first wrong one."""
    cause: str | None
    explained: str | None
    """Explanation of the first wrong comparison, or how far the search went; None if none was made."""
    proven: bool
    """Whether ``explained`` is proven, so that ``cause``, a guess, need not be shown."""
    mistakes: list[str]
    """The ids of the mistakes that ``explained`` names."""
    tried_on: int
    """Number of pages on which they were tried, for a text; else 0."""
    fault: FaultPayload | None
    """Exception that kept the rest of the case from being compared."""
    findings: list[str]
    seconds: SideSeconds
    first_token_ms: Number
    """Milliseconds from the request to the first text; None where the subject does not stream, or did not read."""
    tokens: SideValues
    boxes: SideValues
    shapes: ShapesPayload
    compression: CompressionPayload | None
    """None where the vendor counts no image tokens of such a preset, or the reference wrote nothing."""
    cost: NotRequired[dict[str, int] | None]
    """The fields of :class:`pytest_dsocr.cost.model.PageCost`; None of several pages together."""
    loss: NotRequired[LossPayload | None]
    """None where no budget is set, or the subject raised."""
    readings: NotRequired[dict[str, list[Any]] | None]
    """Text read before each of several readings (``after``), and the wrong ones, from 1 on (``failing``)."""
    said: Said | None
    """None where the subject did not come to its text."""
    picture: Picture | None
    """The page with the boxes of both sides, relative to the folder of the JSON file."""
    by_engine: bool
    """Whether the engine stood in for the vendor's code."""
    comparisons: list[ComparisonPayload]


class ProvenancePayload(TypedDict):
    """Fields of a :class:`~pytest_dsocr.records.provenance.Provenance` that are read again; others are shown only."""

    date: str
    checkpoint_sha256: str
    vendor_sha256: dict[str, str]


class SettingsPayload(TypedDict):
    """Options that are read again; others are shown only."""

    tolerances: dict[str, Finite]
    budget: dict[str, Finite]
    slower: dict[str, Finite]
    max_new_tokens: Count | None
    repeat: Count


class RunPayload(TypedDict):
    """Subject, reference and options of a run."""

    subject: str
    level: LevelWord | None
    """Level of the subject; None if it was given no case."""
    checkpoint: str
    device: str
    dtype: str
    attention: str
    reference: Literal["recorded", "live", "engine"]
    """``engine`` where it answers for what no recording holds; each case says whether it did."""
    where: str
    """The folder of the recording, or of the vendor's files; empty where there is neither."""
    key: str
    """The reference's; see :class:`~pytest_dsocr.records.provenance.RecordingKey`."""
    provenance: ProvenancePayload
    nearest: str
    """Why it is another recording than the run's own key has; empty where it is not."""
    pages: list[str]
    shard: ShardText | None
    """Part of the pages, such as ``1/4``; None for all."""
    presets: list[str]
    prompts: list[str]
    given_by: dict[str, str]
    """Source of each option, by its name: its flag, its variable, or its key in an ini file."""
    settings: SettingsPayload
    """Every option that a verdict may depend on."""


class LeftPayload(TypedDict):
    """Tests that were found and that a selection, or a hook, took out."""

    tests: int
    of: int
    by: list[str]
    """Options of pytest's that select, as they are typed; empty where a hook did it alone."""
    names: list[str]
    """The first of them."""
    listed: list[tuple[str, str, str, str]]
    """The cases that were to be compared here: id, page, preset and prompt; empty where tests have their own."""


class ElapsedPayload(TypedDict):
    """Time of one process by activity, up to the end of one of its tests."""

    worker: str
    """Name of the worker, such as ``gw1``; empty without workers."""
    device: str
    cases: int
    """Number of cases given to both sides."""
    elapsed_s: float
    """Since pytest was configured."""
    seconds: dict[str, float]
    """Seconds by activity; together they are all of them."""


class Origin(TypedDict):
    """Why ``dsocr_check`` failed a test, as far as that test shows it."""

    what: str
    """The comparison that breaks first."""
    why: str
    """Proven explanation; else what to check, if that is known."""
    mistakes: list[str]
    """The ids of the known mistakes that are proven to explain it."""


class TestPayload(TypedDict, total=False):
    """Report of one test; an empty one means that the test had to compare, and did not."""

    run: RunPayload
    case: CasePayload | None
    comparisons: list[ComparisonPayload]
    left_out: str | None
    """Missing thing: a word of ``--dsocr-may-miss``, a level such as ``L2``, or ``not offered``.

    It is ``known failure`` where the test declares one and is not run.
    """
    of_case: str
    """The id of its case, also where that was not compared; empty where it has none."""
    reason: str | None
    """Why it was skipped."""
    fault: FaultPayload | None
    elapsed: ElapsedPayload
    notes: list[str]
    """Other notes so far, one sentence each."""
    perf: Mapping[str, Any]
    """Result of :meth:`pytest_dsocr.timing.run.PerfRun.to_json`, once times were taken."""
    looser: Mapping[str, tuple[float, float, str]]
    """Limits that allowed more than the usual ones, these, and where they were given, by name."""
    cause: Origin | None
    """None where it is not ``dsocr_check`` that failed it."""
    refused: str
    """The preset or prompt that the subject does not offer, such as ``preset tiny``, if the test was skipped for it."""
    promised: bool
    """Whether the test was to compare: it asked for ``dsocr_check``, or is marked ``dsocr``."""


class Entry(TypedDict):
    """Findings of a test, sent separately from the reports; see :class:`~pytest_dsocr.plugin.journal.Journal`."""

    test: str
    attempt: int
    """From 1 on; a test may be run again."""
    comparisons: list[ComparisonPayload]
    """Comparisons that do not pass."""
    expected: bool
    """Whether this test is marked to fail, and did."""


def of_comparison(comparison: Comparison) -> ComparisonPayload:
    """Return a comparison."""
    return {
        "what": comparison.what,
        "verdict": str(comparison.verdict),
        "passes": comparison.passes,
        "measured": comparison.measured,
        "error": of_number(comparison.error),
        "details": list(comparison.details),
        "reason": None if comparison.reason is None else str(comparison.reason),
        "signs": sorted(map(str, comparison.signs)),
        "diff": [[[str(piece.side), piece.text] for piece in line] for line in comparison.diff],
    }


def of_case(report: CaseReport, *, place: int = 0, picture: str | None = None) -> CasePayload:
    """Return a case, judged under the run's own limits and not those of one test; see :class:`CasePayload`."""
    exchange, divergence = report.exchange, report.divergence
    explanation = exchange.explanation
    forced, readings = exchange.answer.forced, report.readings
    return {
        "id": report.case.id,
        "place": place,
        "page": report.case.page_name,
        "prompt": report.case.prompt,
        "preset": report.case.preset.name,
        "verdict": str(report.verdict),
        "passes": report.passes,
        "counts": {str(verdict): count for verdict, count in report.counts.items()},
        "worst_error": of_number(report.worst_error),
        "first_wrong": divergence.first.what if divergence else None,
        "right_before": divergence.right if divergence else 0,
        "cause": hint(divergence, report.case.family) if divergence else None,
        "explained": explanation.text if explanation else None,
        "proven": explanation is not None and explanation.is_proven,
        "mistakes": [*explanation.mistakes] if explanation else [],
        "tried_on": explanation.pages if explanation else 0,
        "fault": of_fault(report.fault, report.case.id) if report.fault else None,
        "findings": list(exchange.findings),
        "seconds": {"reference": exchange.reference_s, "subject": exchange.subject_s},
        "first_token_ms": of_number(exchange.answer.first_token_ms),
        "tokens": {"reference": len(exchange.expected.steps), "subject": None if forced is None else len(forced)},
        "boxes": {
            "reference": sum(len(span.boxes) for span in exchange.expected.output.spans),
            "subject": None if "read" in exchange.answer.lost else sum(len(s.boxes) for s in exchange.answer.spans),
        },
        "shapes": {
            "reference": exchange.expected.inputs.shapes,
            "subject": exchange.answer.inputs.shapes if exchange.answer.inputs else None,
        },
        "compression": _compression(exchange),
        "loss": _loss(report),
        "readings": {"after": [one.after for one in readings.made], "failing": [*readings.failing]}
        if readings
        else None,
        "said": None if "read" in exchange.answer.lost else _output_payload(exchange.answer),
        "picture": picture,
        "by_engine": is_by_engine(exchange.expected.provenance),
        "comparisons": [of_comparison(comparison) for comparison in report.comparisons],
    }


def _loss(report: CaseReport) -> LossPayload | None:
    budget = report.limits.budget
    if not report.loss or budget is None:
        return None
    return {
        "lost": {name: of_number(value) for name, value in report.loss.items()},
        "allowed": dict(budget.allowed),
        "origin": budget.origin,
        "stages": {name: of_number(value) for name, value in report.exchange.stages.items()},
    }


def _compression(exchange: CaseRun) -> CompressionPayload | None:
    from pytest_dsocr.contract.image import load_image
    from pytest_dsocr.cost.workload import Workload, valid_image_tokens

    case, tokens = exchange.case, len(exchange.expected.steps)
    written = tokens - (tokens < case.max_new_tokens)  # the last is then the end token
    if case.is_several:
        return None
    shown = valid_image_tokens(Workload(load_image(case.page).size, case.preset, 0, tokens), case.family)
    return {"vision_tokens": shown, "text_tokens": written} if shown and written > 0 else None


def _output_payload(answer: SubjectResult) -> Said:
    boxes = [[span.label, *map(of_number, box)] for span in answer.spans for box in span.boxes]
    return {"text": printable(answer.text), "boxes": boxes}


def of_run(config: Config, reference: Reference, level: Level | None) -> RunPayload:
    """Return what is compared with what; ``level`` is what the subject offers, where it has been asked."""
    kind, where = _kind(config, reference)
    provenance: Any = {**reference.provenance.to_json(), "overrides": list(reference.provenance.overrides)}
    return {
        "subject": config.subject,
        "level": None if level is None else str(level),
        "checkpoint": config.checkpoint,
        "device": config.device.partition(":")[0],  # each worker may have a GPU of its own
        "dtype": config.dtype,
        "attention": config.attention,
        "reference": kind,
        "where": where,
        "key": str(reference.provenance.key),
        "provenance": provenance,
        "nearest": getattr(reference, "stands_in", ""),
        "pages": [plain(page) for page in config.pages],
        "shard": None if config.shard is None else str(config.shard),
        "presets": list(config.presets),
        "prompts": list(config.prompts),
        "given_by": dict(config.given_by),
        "settings": _settings(config),
    }


def _settings(config: Config) -> SettingsPayload:
    """Return every option as a JSON value, but for those that say where something lies, or how long it may take."""
    values = {one.name: getattr(config, one.name) for one in fields(config) if one.name not in MAY_DIFFER}
    values["xfails"] = config.xfails and sha256(config.xfails.read_bytes())
    found: SettingsPayload = json.loads(msgspec.json.encode(values, order="sorted"))
    return found


def _kind(config: Config, reference: Reference) -> tuple[Literal["recorded", "live", "engine"], str]:
    """Say what a reference is, and where it has its answers from."""
    from pytest_dsocr.reference.engine import EngineReference
    from pytest_dsocr.reference.recording import RecordedReference

    if isinstance(reference, RecordedReference):
        return "recorded", str(reference.recording.folder)
    if isinstance(reference, EngineReference):
        return "engine", str(reference.recorded.recording.folder) if reference.recorded else ""
    return "live", str(config.reference or type(reference).__qualname__)


def of_fault(error: BaseException, case_id: str | None = None) -> FaultPayload:
    """Say that a side raised, in the stage that a ``SubjectFaultError`` names."""
    return {
        "case": case_id,
        "stage": getattr(error, "stage", None),
        "why": message_of(error),
        "infrastructure": is_of_machine(error),
    }


def of_number(value: float | None) -> Number:
    """Return a number as JSON can hold it."""
    if value is None or math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "infinite" if value > 0 else "-infinite"


def number(value: Number) -> float:
    """Return what :func:`of_number` was given; 0 of None, and infinity of a NaN, which no limit allows."""
    words = {None: 0.0, "infinite": math.inf, "-infinite": -math.inf, "nan": math.inf}
    return words[value] if value is None or isinstance(value, str) else value


def picture_name(case_id: str) -> str:
    """Name the file of a case's picture, relative to the run's folder."""
    return f"pages/{case_id}.jpg"
