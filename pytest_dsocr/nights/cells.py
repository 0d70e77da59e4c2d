"""A night's verdicts in one letter for each case and stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.report.exit_status import Ending
from pytest_dsocr.report.words import likely_cause

INPUTS, TIMES, OTHER = "tokenizer", "times", "other"
OUTPUT = "postprocess"
STAGES = (INPUTS, "sam", "clip", "projector", "vision_fusion", "prefill", "decode", OUTPUT, TIMES, OTHER)
"""As the report calls them, in the order of the data; what is of none of them comes last."""
OF_STAGE: Mapping[str, str] = {
    **dict.fromkeys(("input_ids", "inputs", "dtypes"), INPUTS),
    **dict.fromkeys(("logits", "tokens"), "decode"),
    **dict.fromkeys(("read", "text", "spans", "boxes", "result", "artefacts"), OUTPUT),
    "prefill_best": "prefill",
    "perf": TIMES,
}
MACHINE = "I"
LETTERS: Mapping[str, str] = {
    Verdict.NOT_COMPARED: "N",
    Verdict.MATCH: "M",
    Verdict.DRIFT: "D",
    Verdict.TIE_FLIP: "T",
    Verdict.WRONG: "W",
}
GRAVITY = "NMDTIW"
RIGHT, WRONG = "MDT", "W"
WORDS: Mapping[str, str] = {letter: str(verdict) for verdict, letter in LETTERS.items()} | {MACHINE: "the machine"}
Letter = Annotated[str, Meta(pattern=rf"\A[{GRAVITY}]\Z")]
Cells = dict[str, dict[str, Letter]]
"""By case, which is empty for what is of no page, and by stage: a letter."""


class Wrong(NamedTuple):
    """The first thing that is wrong in a case."""

    case: str
    stage: str
    what: str
    measured: str
    cause: str
    part: str
    """Of the night."""


def stage_of(what: str) -> str:
    """Give the stage of a comparison by its name: ``sam`` of ``sam.page/3``."""
    head = what.partition("/")[0].partition(".")[0]
    stage = OF_STAGE.get(head, INPUTS if head.startswith("images") else head)
    return stage if stage in STAGES else OTHER


def gravest(letters: Iterable[str]) -> str:
    """Give the gravest of some letters; nothing of none."""
    return max(letters, key=GRAVITY.index, default="")


def cells_of(results: Iterable[Mapping[str, Any]]) -> Cells:
    """Give the gravest letter of each case and stage, as the tests of some runs judged them."""
    found: Cells = {}
    for result in results:
        for test in result.get("tests", ()):
            case = found.setdefault(test["case"] or "", {})
            for stage, letter in _letters(test):
                case[stage] = gravest(filter(None, (case.get(stage), letter)))
    return {case: stages for case, stages in found.items() if stages}


def wrong_in(part: str, result: Mapping[str, Any]) -> Iterator[Wrong]:
    """Yield what broke first in each case of a run, then what is wrong of no case."""
    tests = result.get("tests", ())
    for case in result.get("cases", ()):
        of_tests = [one for test in tests if test["case"] == case["id"] for one in test["comparisons"]]
        measured = {one["what"]: one["measured"] for one in of_tests if one["verdict"] == Verdict.WRONG}
        what, fault = case["first_wrong"] or next(iter(measured), None), case["fault"]
        if case["passes"] or not (what or (fault and not fault["infrastructure"])):
            continue
        named = what or fault["stage"] or "read"
        told = measured.get(named) or (fault["why"] if fault else "")
        yield Wrong(case["id"], stage_of(named), named, told, likely_cause(case), part)
    for test in tests:
        if test["case"] is None and test["why"] and test["ended_as"] != Ending.INFRASTRUCTURE:
            wrong = [one for one in test["comparisons"] if one["verdict"] == Verdict.WRONG]
            named = wrong[0]["what"] if wrong else test["nodeid"].rpartition("::")[2]
            yield Wrong("", stage_of(named), named, wrong[0]["measured"] if wrong else test["why"], "", part)


def _letters(test: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for one in test["comparisons"]:
        if one["verdict"] != Verdict.NOT_COMPARED or not one["passes"]:
            yield stage_of(one["what"]), LETTERS[one["verdict"]]
    if test["why"] and not any(one["verdict"] == Verdict.WRONG for one in test["comparisons"]):
        stage = (test["fault"] or {}).get("stage")
        letter = MACHINE if test["ended_as"] == Ending.INFRASTRUCTURE else WRONG
        yield stage_of(stage) if stage else OTHER, letter
