"""The next stage of a port that is missing or wrong, found in a result; at most one screen of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Literal

from msgspec import Struct, structs

from pytest_dsocr.base.words import entry, fit, listed, plain
from pytest_dsocr.compare.verdict import Reason, Verdict
from pytest_dsocr.contract import GRID, PIXELS, ROWS
from pytest_dsocr.models.spec import DECODE, FUSION, PREFILL, PREPROCESS, TOKENIZER, ModelSpec, Stage
from pytest_dsocr.records.names import ComparisonName, TensorName
from pytest_dsocr.reference.drift import read_json
from pytest_dsocr.reference.goldens import anchors_file
from pytest_dsocr.report.case_result import CaseResult, ComparisonResult
from pytest_dsocr.report.causes import by_first
from pytest_dsocr.report.document import RunJson

MOST_LINES, MOST_WHY = 60, 9
INPUTS = "inputs, for its ids, mask, grid and pixels"
OFFERED: Mapping[str, tuple[str, ...]] = {
    PREPROCESS: (GRID, *PIXELS),
    TOKENIZER: ROWS,
    PREFILL: (PREFILL, "prefill_best"),
    DECODE: ("logits", "tokens"),
    "postprocess": ("text", "spans", "boxes"),
}
"""Comparisons that a finished port offers, by stage; a stage of vision offers its seams."""
ALSO: Mapping[str, tuple[str, ...]] = {PREPROCESS: ("dtypes",), "postprocess": ("read", "result.mmd", "artefacts")}
"""Comparisons that it may leave out."""
METHODS = {PREPROCESS: "inputs", TOKENIZER: "inputs", PREFILL: "prefill", DECODE: "step", "postprocess": "read"}
TAKES = {
    PREPROCESS: ["the page's file, and the preset"],
    TOKENIZER: ["the prompt's text, and the number of image tokens"],
    DECODE: ["the state after the prompt, and one token after another"],
    "postprocess": ["the page's file, the prompt and the preset: the port's own loop to its end"],
}
PortState = Literal["missing", "wrong", "raised", "engine", "machine"]
MEANING: Mapping[PortState, str] = {
    "missing": "missing: the port does not offer it",
    "wrong": "wrong",
    "raised": "raised an error",
    "engine": "not the port's: its process loads the built-in engine",
    "machine": "not compared, for a reason outside of the port",
}


class PortWork(Struct, frozen=True, kw_only=True):
    """Stage of a port to write or to fix next."""

    stage: str
    """Name of a stage, or ``load``."""
    state: PortState
    right: list[str]
    """Stages before it. They are right."""
    found: list[str]
    """Measured differences, the first place first."""
    why: list[str]
    """Cause, description, check and causes of later stages, each with its label."""
    case: str = ""
    takes: list[str] = []
    gives: list[str] = []
    """Name, dtype and shape of each tensor."""
    method: str = ""
    vendor: list[str] = []
    """The vendor's module, then symbols and their lines in each of the vendor's files."""
    alone: str = ""
    """Command that runs the failing test alone, if it is of no case."""


def next_work(
    result: RunJson, family: ModelSpec, shapes: Mapping[str, Sequence[int | str]], before: str = ""
) -> PortWork | None:
    """Return the first stage, in the order of the data, that is missing or wrong; None if all are right.

    Args:
        result: the result of a run.
        family: the model.
        shapes: shape of each tensor, by name.
        before: the first stage that is not looked at; by default all are.
    """
    stages = family.stages[: family.stages.index(family.stage[before]) if before else None]
    right: list[str] = []
    dtype = result.run.dtype if result.run else "float32"
    for stage in stages:
        for case in result.cases:
            if state := _state_of(stage, case):
                found, why = [*_found(stage, case, state)], [*_why(stage, case, state)]
                return _work(stage, family, shapes, case, dtype, state=state, right=right, found=found, why=why)
        right.append(stage.name)
    return _of_tests(result, family, shapes, dtype, right, stages)


def _of_tests(
    result: RunJson,
    family: ModelSpec,
    shapes: Mapping[str, Sequence[int | str]],
    dtype: str,
    right: list[str],
    stages: Sequence[Stage],
) -> PortWork | None:
    """Return what the other suites found: the cause that comes first in the order of the data."""
    ranked = []
    for cause, test in by_first(result.causes, result.tests):
        what = cause.what or next((one.what for one in test.comparisons if not one.passes), "")
        stage = next((one for one in family.stages if _stage_of(what) in _names(one)), None)
        if stage is None or stage in stages:
            ranked.append((family.stages.index(stage) if stage else len(family.stages), cause, test, stage))
    if not ranked:
        return None
    _, cause, test, stage = min(ranked, key=lambda one: one[0])
    right = right[: right.index(stage.name)] if stage and stage.name in right else right
    failing = [one for one in test.comparisons if not one.passes]
    measured = [f"{one.what}: {one.measured}" for one in failing]
    nodeid = test.nodeid.rpartition("/")[2]
    found = [nodeid if test.why in measured else f"{nodeid}: {test.why}", *measured]
    found += [line for one in failing for line in one.details]
    state: PortState = "machine" if test.ended_as == "infrastructure" else "raised" if test.fault else "wrong"
    why = [f"cause: {cause.said}"] if cause.said and cause.said != test.why else []
    alone = test.rerun or ""
    if stage:
        case = next(iter(result.cases), None)
        work = _work(stage, family, shapes, case, dtype, state=state, right=right, found=found, why=why)
        return structs.replace(work, case="", alone=alone)
    name = (test.fault and test.fault.stage) or "load" if not result.cases else "all stages together"
    return PortWork(stage=name or "load", state=state, right=right, found=found, why=why, alone=alone)


def _names(stage: Stage) -> tuple[str, ...]:
    return (stage.name, *OFFERED.get(stage.name, ()), *ALSO.get(stage.name, ()))


def _stage_of(what: str) -> str:
    return ComparisonName.parse(what).stage


def _of(stage: Stage, case: CaseResult) -> Iterator[ComparisonResult]:
    """Yield the comparisons of a stage."""
    names = _names(stage)
    yield from (one for one in case.comparisons if _stage_of(one.what) in names)


def _state_of(stage: Stage, case: CaseResult) -> PortState | None:
    """Return how a stage of a case falls short; None if everything that it has to offer is right."""
    made = [*_of(stage, case)]
    if any(one.verdict == Verdict.WRONG for one in made):
        return "wrong"
    if any(not one.passes for one in made):
        if case.fault and "NotImplementedError" not in case.fault.why:
            return "raised"
        lacks_reference = any(one.reason == Reason.NOT_IN_REFERENCE for one in made)
        return "machine" if lacks_reference and not case.fault else "missing"
    needed = OFFERED.get(stage.name, stage.seams)
    absent = any(one.what in needed and one.reason == Reason.NOT_OFFERED for one in made)
    is_short = stage.name == DECODE and (case.tokens["subject"] or 0) < (case.tokens["reference"] or 0)
    return "missing" if absent or is_short else None


def _found(stage: Stage, case: CaseResult, state: PortState) -> Iterator[str]:
    made = [*_of(stage, case)]
    if state == "missing":
        absent = (Reason.NOT_OFFERED, Reason.NOT_GIVEN, Reason.LOST)
        names, needed = [one.what for one in made if one.reason in absent], OFFERED.get(stage.name, stage.seams)
        steps = f"{case.tokens['subject'] or 0} of {case.tokens['reference']} steps"
        yield listed([one for one in names if one in needed] or names) or steps
        return
    if state == "raised" and case.fault:
        yield case.fault.why.partition("; see the error")[0]
        return
    failing = [one for one in made if not one.passes]
    yield f"{failing[0].what}: {failing[0].measured}"
    yield from failing[0].details
    yield from (f"{one.what}: {one.measured}" for one in failing[1:])


def _why(stage: Stage, case: CaseResult, state: PortState) -> Iterator[str]:
    if state != "wrong":
        return
    if case.explained:
        yield f"{'cause, proven' if case.proven else 'explained'}: {case.explained}"
    if case.described:
        yield f"measured: {case.described.text}"
    if case.cause and not case.proven and case.cause not in (case.explained or ""):
        yield f"check: {case.cause}"
    is_whole = case.first_wrong is not None and TensorName.parse(case.first_wrong).block is None
    if stage.blocks and is_whole and not case.mistakes:
        name = [stage.name, *stage.seams][-1]
        yield f"check: which block is wrong first: offer module (L3), or write {name}.0 and so on for dump:"
    yield from (f"also wrong: {one.what}: {one.said}" for one in case.further)
    yield from (f"found: {one}" for one in case.findings if not case.further)


def _work(
    stage: Stage,
    family: ModelSpec,
    shapes: Mapping[str, Sequence[int | str]],
    case: CaseResult | None,
    dtype: str,
    *,
    state: PortState,
    right: list[str],
    found: list[str],
    why: list[str],
) -> PortWork:
    inputs = (case.shapes["reference"] if case else None) or {}

    def shown(names: Sequence[str]) -> list[str]:
        kinds = {one: "int64" if one == "tokens" else dtype for one in names if one in shapes}
        return [f"{one}: {inputs.get(one) or f'{kind} {_shape(shapes[one])}'}" for one, kind in kinds.items()]

    before = {one.name: one for one in family.stages}
    seams = [seam for name in stage.takes if name in before for seam in before[name].seams]
    fed = {FUSION: (GRID, *family.of_views[-1].seams), PREFILL: (*ROWS, FUSION)}.get(stage.name, seams)
    takes = TAKES.get(stage.name) or shown(fed or PIXELS)
    gives = shown(OFFERED.get(stage.name, stage.seams)) or ["the decoded text, with its markup and without the EOS"]
    module = [f"{stage.module} (its blocks: {stage.blocks})" if stage.blocks else stage.module] if stage.module else []
    method = METHODS.get(stage.name, "vision")
    if stage.kind == "view":
        method = f"vision, and {listed(stage.seams)} in seams; in a class without read {stage.name} alone"
    return PortWork(
        stage=stage.name,
        state=state,
        right=right,
        found=found,
        why=why,
        case=case.id if case else "",
        takes=takes,
        gives=gives,
        method=method,
        vendor=[*module, *_places(stage, family)],
    )


def _places(stage: Stage, family: ModelSpec) -> Iterator[str]:
    """Yield the vendor's files that compute a stage, each with its symbols and their lines.

    The features that a stage takes of several others are joined where the views are.
    """
    symbols, by_file = read_json(anchors_file(family), family).symbols, dict[str, list[str]]()
    joins = family.vendor.contract[FUSION] if stage.kind == "view" and len(stage.takes) > 1 else ()
    for name in (*family.vendor.contract.get(stage.name, ()), *joins):
        if name in symbols:
            by_file.setdefault(symbols[name].file, []).append(f"{name} {symbols[name].line}")
    yield from (f"{file}: {', '.join(names)}" for file, names in by_file.items())


def _shape(sizes: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def lines(work: PortWork, log: str, again: str) -> Iterator[str]:
    """Yield at most one screen: the stage and its state, what was found and why, then what it takes and gives.

    Args:
        work: what to do next.
        log: file with pytest's output.
        again: the command to run again.
    """
    yield f"next            {work.stage}: {MEANING[work.state]}"
    yield from entry("right", ", ".join(work.right) or "nothing yet", 2)
    if work.case:
        yield f"{'case':<16}{work.case}"
    alone = [f"{'alone':<16}{plain(work.alone)}"] if work.alone else []
    last = [f"{'log':<16}{log}", *alone, f"{'again':<16}{plain(again)}"]  # never broken, as it is to be copied
    parts = chain(
        chain.from_iterable(entry("found" if not k else "", fit(one, 400)) for k, one in enumerate(work.found[:8])),
        chain.from_iterable(entry(*_labelled(one), 6) for one in work.why[:MOST_WHY]),
        chain.from_iterable(entry("takes" if not k else "", one, 2) for k, one in enumerate(work.takes)),
        chain.from_iterable(entry("gives" if not k else "", one, 2) for k, one in enumerate(work.gives)),
        entry("method", f"{work.method}; for dump: files of these names", 2) if work.method else (),
        chain.from_iterable(entry("vendor" if not k else "", one, 4) for k, one in enumerate(work.vendor)),
    )
    yield from islice(parts, MOST_LINES - 5 - len(last))
    yield from last


def _labelled(text: str) -> tuple[str, str]:
    label, _, rest = text.partition(": ")
    return label, rest
