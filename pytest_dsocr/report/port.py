"""The next stage of a port that is missing or wrong, found in a result; at most one screen of text."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from pytest_dsocr.base.words import entry, fit, listed, plain
from pytest_dsocr.compare.verdict import Reason, Verdict
from pytest_dsocr.contract import GRID, PIXELS, ROWS
from pytest_dsocr.models.spec import DECODE, FUSION, PREFILL, PREPROCESS, TOKENIZER, ModelSpec, Stage
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.reference.drift import read_json
from pytest_dsocr.reference.goldens import anchors_file
from pytest_dsocr.report.case_result import CaseResult
from pytest_dsocr.report.cause import by_first
from pytest_dsocr.report.comparison_result import ComparisonResult
from pytest_dsocr.report.document import RunJson
from pytest_dsocr.report.strip import OF_STAGE, OUTPUT, stage_of

MOST_LINES, MOST_WHY = 60, 9
OPTIONAL = frozenset(("dtypes", "inputs", "read", "result.mmd", "artefacts"))
"""Comparisons that a finished port may leave out."""
METHODS = {PREPROCESS: "inputs", TOKENIZER: "inputs", PREFILL: "prefill", DECODE: "step", OUTPUT: "read"}
TAKES = {
    PREPROCESS: ["the page's file, and the preset"],
    TOKENIZER: ["the prompt's text, and the number of image tokens"],
    DECODE: ["the state after the prompt, and one token after another"],
    OUTPUT: ["the page's file, the prompt and the preset: the port's own loop to its end"],
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
        shapes: shape of each tensor, by name.
        before: the first stage that is not looked at; by default all are.
    """
    stages = family.stages[: family.stages.index(family.stage[before]) if before else None]
    dtype = result.run.dtype if result.run else "float32"
    kinds = {
        name: f"{'int64' if name == 'tokens' else dtype} [{', '.join(map(str, sizes))}]"
        for name, sizes in shapes.items()
    }
    right: list[str] = []
    for stage in stages:
        for case in result.cases:
            if state := _state_of(stage, case):
                found, why = [*_found(stage, case, state)], [*_why(stage, case, state)]
                work = PortWork(stage=stage.name, state=state, right=right, found=found, why=why, case=case.id)
                return _with_interface(work, stage, family, kinds, case.shapes["reference"] or {})
        right.append(stage.name)
    return _of_tests(result, family, kinds, right, stages)


def _of_tests(
    result: RunJson, family: ModelSpec, kinds: Mapping[str, str], right: list[str], stages: Sequence[Stage]
) -> PortWork | None:
    """Return what the other suites found: the cause that comes first in the order of the data."""
    ranked = []
    for cause, test in by_first(result.causes, result.tests):
        what = cause.what or next((one.what for one in test.comparisons if not one.passes), "")
        stage = family.stage.get(stage_of(what, ""))
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
    name = (test.fault and test.fault.stage) or "load" if not result.cases else "all stages together"
    name, alone = stage.name if stage else name, test.rerun or ""
    work = PortWork(stage=name, state=state, right=right, found=found, why=why, alone=alone)
    inputs = next((case.shapes["reference"] for case in result.cases), None) or {}
    return _with_interface(work, stage, family, kinds, inputs) if stage else work


def offered(stage: Stage) -> list[str]:
    """Return the comparisons that a finished port offers of a stage; a stage of vision offers its seams."""
    return [what for what in OF_STAGE.get(stage.name, stage.seams) if what not in OPTIONAL]


def _of(stage: Stage, case: CaseResult) -> list[ComparisonResult]:
    """Return the comparisons of a stage."""
    return [one for one in case.comparisons if stage_of(one.what, "") == stage.name]


def _state_of(stage: Stage, case: CaseResult) -> PortState | None:
    """Return how a stage of a case falls short; None if everything that it has to offer is right."""
    made = _of(stage, case)
    if any(one.verdict == Verdict.WRONG for one in made):
        return "wrong"
    if any(not one.passes for one in made):
        if case.fault and "NotImplementedError" not in case.fault.why:
            return "raised"
        lacks_reference = any(one.reason == Reason.NOT_IN_REFERENCE for one in made)
        return "machine" if lacks_reference and not case.fault else "missing"
    absent = any(one.what in offered(stage) and one.reason == Reason.NOT_OFFERED for one in made)
    is_short = stage.name == DECODE and (case.tokens["subject"] or 0) < (case.tokens["reference"] or 0)
    return "missing" if absent or is_short else None


def _found(stage: Stage, case: CaseResult, state: PortState) -> Iterator[str]:
    made = _of(stage, case)
    if state == "missing":
        absent = (Reason.NOT_OFFERED, Reason.NOT_GIVEN, Reason.LOST)
        names = [one.what for one in made if one.reason in absent]
        steps = f"{case.tokens['subject'] or 0} of {case.tokens['reference']} steps"
        yield listed([one for one in names if one in offered(stage)] or names) or steps
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


def _with_interface(
    work: PortWork, stage: Stage, family: ModelSpec, kinds: Mapping[str, str], inputs: Mapping[str, str]
) -> PortWork:
    """Add what a stage takes and gives, the method that computes it, and the vendor's code.

    Args:
        kinds: dtype and shape of each tensor, by name.
        inputs: those of the inputs of a case.
    """

    def shown(names: Sequence[str]) -> list[str]:
        return [f"{one}: {inputs.get(one) or kinds[one]}" for one in dict.fromkeys(names) if one in kinds]

    before = {one.name: one for one in family.stages}
    seams = [seam for name in stage.takes if name in before for seam in before[name].seams]
    fed = {FUSION: (GRID, *family.of_views[-1].seams), PREFILL: (*ROWS, FUSION)}.get(stage.name, seams)
    module = [f"{stage.module} (its blocks: {stage.blocks})" if stage.blocks else stage.module] if stage.module else []
    method = METHODS.get(stage.name, "vision")
    if stage.kind == "view":
        method = f"vision, and {listed(stage.seams)} in seams; in a class without read {stage.name} alone"
    return replace(
        work,
        takes=TAKES.get(stage.name) or shown(fed or PIXELS),
        gives=shown(offered(stage)) or ["the decoded text, with its markup and without the EOS"],
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


def lines(work: PortWork, log: str, again: str) -> Iterator[str]:
    """Yield at most one screen: the stage and its state, what was found and why, then what it takes and gives."""
    yield f"next            {work.stage}: {MEANING[work.state]}"
    yield from entry("right", ", ".join(work.right) or "nothing yet", 2)
    if work.case:
        yield f"{'case':<16}{work.case}"
    alone = [f"{'alone':<16}{plain(work.alone)}"] if work.alone else []
    last = [f"{'log':<16}{log}", *alone, f"{'again':<16}{plain(again)}"]  # never broken, as it is to be copied
    parts = chain(
        chain.from_iterable(entry("found" if not k else "", fit(one, 400)) for k, one in enumerate(work.found[:8])),
        chain.from_iterable(
            entry(what, why, 6) for what, _, why in (one.partition(": ") for one in work.why[:MOST_WHY])
        ),
        chain.from_iterable(entry("takes" if not k else "", one, 2) for k, one in enumerate(work.takes)),
        chain.from_iterable(entry("gives" if not k else "", one, 2) for k, one in enumerate(work.gives)),
        entry("method", f"{work.method}; for dump: files of these names", 2) if work.method else (),
        chain.from_iterable(entry("vendor" if not k else "", one, 4) for k, one in enumerate(work.vendor)),
    )
    yield from islice(parts, MOST_LINES - 5 - len(last))
    yield from last
