"""A mistake to be planted, and what a default run reports of it."""

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
"""Where a comparison, or an error, belongs to; any other stage is called as it is."""
OF_GROUPS = {
    **dict.fromkeys(("pixels", "prompt"), "tokenizer"),
    **dict.fromkeys(("steps", "tokens"), "decode"),
    **dict.fromkeys(("text", "written", "files"), "postprocess"),
}
"""The stage of a mistake of the catalogue that nothing else is known of; that of any other is called as its group."""


def stage_of_group(group: str) -> str:
    """Return the stage that a group of the catalogue is about."""
    return OF_GROUPS.get(group, group)


def stage_of(name: str) -> str:
    """Return the stage of a comparison's own."""
    return next((stage for stage, names in STAGES.items() if name in names), name)


@dataclass(frozen=True)
class Fault:
    """A mistake of the catalogue."""

    stage: str
    spec: str
    """The subject that has it."""
    put: Callable[[EngineSubject, Changes], None]
    """Plants it until the changes are undone."""
    mistake: str = ""
    """Its id in the catalogue."""
    shows: str = ""


def of_catalogue(names: tuple[str, ...] = ()) -> Mapping[str, Fault]:
    """Return those of the catalogue that were seen somewhere, or those of these ids and numbers."""
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
    """What shows a mistake."""

    by: str
    """The page, or the suite, that shows it first."""
    first: str
    """The first comparison that is WRONG, or the error, or the test."""
    stage_right: bool = False
    """Whether it is found in its own stage; below L3, whether all that is named is of it."""
    hint: str = ""
    explained: str = ""
    """What is said to explain it."""
    proven: bool = False
    named: bool = False
    """Whether the explanation names the mistake itself, of those that are in the catalogue."""
    mistakes: str = ""
    """Below L3, the ids of all that give the same on every page."""


def outcome_of(fault: Fault, page: str, report: CaseReport) -> Outcome | None:
    """Say how a page shows the mistake; None where the page passes."""
    if report.divergence is not None:
        found, begins, said = report.divergence.first, report.divergence.begins, hint(report.divergence, DEEPSEEK_OCR)
        at = next((one for one in report.comparisons if one.what == begins), found)
        return Outcome(page, begins or found.what, stage_of(at.stage) == fault.stage, said)
    if report.fault is not None:
        right = stage_of(report.fault.stage) == fault.stage
        return Outcome(page, f"error in {report.fault.stage}", right, str(report.fault))
    return None if report.passes else Outcome(page, str(report.verdict))
