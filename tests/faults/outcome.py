"""A mistake to plant, and the report of a default run on it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.explain.catalogue import Port, mistakes, ports, seen
from pytest_dsocr.explain.hints import hint
from pytest_dsocr.explain.mistake import Changes
from pytest_dsocr.explain.planted import plant, spec_of
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.subjects.engine import EngineSubject

STAGES = {
    "tokenizer": ("input_ids", "images_seq_mask", "images_spatial_crop", "images_crop", "images_ori", "dtypes"),
    "prefill": ("prefill", "prefill_best"),
    "decode": ("decode", "logits", "tokens", "policy"),
    "postprocess": ("postprocess", "text", "spans", "boxes", "result.mmd", "artefacts"),
}
"""Comparisons and errors by stage; the others are named after their stage."""
OF_GROUPS = {
    **dict.fromkeys(("pixels", "prompt"), "tokenizer"),
    **dict.fromkeys(("steps", "tokens"), "decode"),
    **dict.fromkeys(("text", "written", "files"), "postprocess"),
}
"""Stages of the groups that are not named after their stage."""


def stage_of_group(group: str) -> str:
    """Return the stage of a group of mistakes."""
    return OF_GROUPS.get(group, group)


def stage_of(name: str) -> str:
    """Return the stage of a comparison or an error."""
    return next((stage for stage, names in STAGES.items() if name in names), name)


def is_named(words: str, said: str) -> bool:
    """Return whether a hint names the mistake with these words."""
    return any(one == words or one.endswith((f": {words}", f"; {words}")) for one in said.split(", or "))


@dataclass(frozen=True)
class Fault:
    """A mistake of the catalogue."""

    stage: str
    spec: str
    """Subject with the mistake."""
    put: Callable[[EngineSubject, Changes], None]
    """Plant the mistake until the changes are undone."""
    mistake: str = ""
    """Id in the catalogue."""
    shows: str = ""


def of_catalogue(names: tuple[str, ...] = ()) -> Mapping[str, Fault]:
    """Return the mistakes with these ids and numbers, or all that were seen in ports."""
    asked = names or tuple(one.id for one in seen(DEEPSEEK_OCR))
    return {name: _of_catalogue(name) for name in asked}


def _of_catalogue(name: str) -> Fault:
    port = ports().get(name) or Port(name, "", name)
    one = mistakes(DEEPSEEK_OCR)[port.mistake]
    return Fault(
        port.stage or stage_of_group(one.group),
        spec_of(one.id),
        lambda own, changes: plant(one, own.engine, changes),
        one.id,
        port.shows,
    )


@dataclass(frozen=True)
class Outcome:
    """Result of a run with a planted mistake."""

    by: str
    """Page or suite that shows the mistake first."""
    first: str
    """First WRONG comparison, or the error, or the test."""
    stage_right: bool = False
    """Whether the mistake is found in its own stage; below L3, whether only mistakes of this stage are named."""
    hint: str = ""
    explained: str = ""
    """Text of the explanation."""
    proven: bool = False
    named: bool = False
    """Whether the explanation names the planted mistake."""
    mistakes: str = ""
    """Below L3, ids of the mistakes that give the same on every page."""


def outcome_of(fault: Fault, page: str, report: CaseReport) -> Outcome | None:
    """Return the outcome of a page; None if it passes."""
    if report.divergence is not None:
        found, begins, said = report.divergence.first, report.divergence.begins, hint(report.divergence, DEEPSEEK_OCR)
        at = next((one for one in report.comparisons if one.what == begins), found)
        return Outcome(page, begins or found.what, stage_of(at.stage) == fault.stage, said)
    if report.fault is not None:
        right = stage_of(report.fault.stage) == fault.stage
        return Outcome(page, f"error in {report.fault.stage}", right, str(report.fault))
    return None if report.passes else Outcome(page, str(report.verdict))
