"""The receipt of a run: the facts that a reviewer of a port needs, under one digest, from the run's ``dsocr.json``."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import seal, sha256, unseal, write_whole
from pytest_dsocr.base.own_files import changed_files, own_sha256
from pytest_dsocr.base.process import commit_of
from pytest_dsocr.base.reading import Commit, Count, Format, Moment
from pytest_dsocr.base.words import PACKAGE, count, in_shell, listed
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.explain.reproducer import FOLDER, stage_of_reproducer
from pytest_dsocr.history.record import stage_of
from pytest_dsocr.report.cause import FailureCause
from pytest_dsocr.report.comparison_result import LimitsUsed
from pytest_dsocr.report.document import Environment, Looser, RunJson, finished
from pytest_dsocr.report.file import JSON_NAME, Ending, read_result
from pytest_dsocr.report.run_sides import RunSides

FORMAT: Literal[1] = 1
RECEIPT_NAME, MARKDOWN_NAME = "receipt.json", "receipt.md"
TESTS, KNOWN = "--tests=", "known failure"
MOST_CHANGED = 20
SINCE = "not known: the receipt was made by another installation than the run"


class ToolFacts(Struct, frozen=True):
    """Version and files of this package when the run ended."""

    version: str
    files_sha256: str
    """Hash of the names and contents of its Python files and of the suites."""
    commit: str | None
    """Commit of its checkout; None of an installed wheel."""
    changed: list[str]
    """Files that differ from the wheel or the commit; the first ones."""


class CaseVerdict(Struct, frozen=True):
    """A page with a preset and a prompt."""

    id: str
    verdict: str
    passes: bool
    by_engine: bool
    """Whether the engine answered instead of the vendor's code."""


class ReproducedCause(Struct, frozen=True):
    """A cause of failures, and the script that shows it without this package."""

    found: FailureCause
    reproducer_sha256: dict[str, str]
    """Hashes of its files, and of those of the causes after it, by path relative to the folder of the result."""


class Receipt(Struct, kw_only=True, frozen=True):
    """Facts of a finished run."""

    format: Literal[1]
    run: str
    """Id of the run."""
    started: Moment
    ended: str | None
    commit: Commit | None
    """Commit of the folder that the run was started in."""
    verdict: str
    passes: bool
    ended_as: Ending
    model: str
    sides: RunSides
    cases: list[CaseVerdict]
    limits: list[LimitsUsed]
    """Each set of limits once."""
    looser: dict[str, Looser]
    budget: str
    """Origin of a budget; empty without one."""
    counts: dict[str, Count]
    """Number of comparisons by verdict."""
    stages: dict[str, dict[str, Count]]
    """Number of comparisons by stage and verdict."""
    not_offered: dict[str, list[str]]
    """Comparisons that the subject does not offer, by level."""
    left_out: list[str]
    """Whatever the run's options or its end left out, one phrase each."""
    not_possible: list[str]
    """Other things that were not compared, one phrase each."""
    causes: list[ReproducedCause]
    tool: ToolFacts
    environment: Environment
    command: str
    """Command that the user typed."""
    reproduce: list[str]
    """Words of ``dsocr compare`` that run it again; empty if other tests took part."""
    result_sha256: str
    """Hash of the run's ``dsocr.json``."""
    sha256: str = ""
    """Hash of everything above, as the file has it."""


def _unsealed(data: bytes) -> dict[str, Any]:
    try:
        return unseal(data)
    except ValueError as error:
        raise ValueError(f"{error}: it was edited or cut after it was made") from error


RECEIPTS = Format(Receipt, "ask for the file as the tool wrote it", parse=_unsealed)


def receipt_of(folder: Path) -> Receipt:
    """Return the receipt of the finished run in a folder.

    Raises:
        DsocrError: if there is no finished run, or it compared nothing.
    """
    path = folder if folder.suffix == ".json" else folder / JSON_NAME
    result = finished(read_result(path), path)
    if result.run is None:
        raise DsocrError(f"{path} compares nothing ({result.verdict}), so there is nothing to certify")
    used = [case.limits for case in result.cases]
    made = Receipt(
        format=FORMAT,
        run=result.id,
        started=result.started,
        ended=result.ended,
        commit=result.commit,
        verdict=result.verdict,
        passes=result.passes,
        ended_as=result.ended_as,
        model=family_named(result.run.checkpoint).title,
        sides=result.run,
        cases=[CaseVerdict(case.id, case.verdict, case.passes, case.by_engine) for case in result.cases],
        limits=[one for k, one in enumerate(used) if one not in used[:k]],
        looser=result.looser,
        budget=result.budget.origin if result.budget else "",
        counts=result.counts,
        stages=stages_of(result),
        not_offered=result.not_offered,
        left_out=[*_left_out(result)],
        not_possible=[*_not_possible(result)],
        causes=[*_causes(result, path.parent)],
        tool=_tool(result),
        environment=result.environment,
        command=in_shell(result.reproduce) or result.command,
        reproduce=result.reproduce,
        result_sha256=sha256(path.read_bytes()),
    )
    return replace(made, sha256=RECEIPTS.parse(sealed(made))["sha256"])


def sealed(receipt: Receipt) -> bytes:
    """Return the receipt's file: JSON that ends with the hash of all before."""
    return seal({name: value for name, value in to_builtins(receipt).items() if name != "sha256"})


def write_receipt(folder: Path) -> Receipt:
    """Write the receipt of a run next to its result, as JSON and as Markdown, and return it.

    Raises:
        DsocrError: as :func:`receipt_of`, and if a file cannot be written.
    """
    from pytest_dsocr.receipt.markdown import markdown

    found = receipt_of(folder)
    place = folder.parent if folder.suffix == ".json" else folder
    write_whole(place / RECEIPT_NAME, sealed(found))
    write_whole(place / MARKDOWN_NAME, markdown(found))
    return found


def _tool(result: RunJson) -> ToolFacts:
    """Return the tool of a run. If it was another one than this, its files are known by their hash alone."""
    if result.tool_sha256 != own_sha256():
        return ToolFacts(result.pytest_dsocr, result.tool_sha256, None, [SINCE])
    return ToolFacts(result.pytest_dsocr, result.tool_sha256, commit_of(PACKAGE), changed_files()[:MOST_CHANGED])


def stages_of(result: RunJson) -> dict[str, dict[str, int]]:
    """Count the comparisons of all tests by stage and verdict."""
    found = defaultdict[str, Counter[str]](Counter)
    for one in (one for test in result.tests for one in test.comparisons):
        found[stage_of(one.what)][one.verdict] += 1
    return {stage: dict(sorted(counts.items())) for stage, counts in sorted(found.items())}


def _left_out(result: RunJson) -> Iterator[str]:
    left, run = result.left, result.run
    if named := [word.removeprefix(TESTS) for word in result.reproduce if word.startswith(TESTS)]:
        yield f"all tests but {listed(named, 3)}"
    if run and run.shard:
        yield f"all but shard {run.shard}"
    if left.tests:
        by = f" by {', '.join(left.by)}" if left.by else ""
        yield f"{left.tests} of {count(left.of, 'test')}{by}"
    if left.not_compared:
        yield f"{count(len(left.not_compared), 'case')}: {listed(left.not_compared, 3)}"
    if unended := len(result.not_ended):
        yield f"{count(unended, 'test')} that did not end"
    yield from (f"{one}, which could not be collected" for one in result.uncollected)


def _not_possible(result: RunJson) -> Iterator[str]:
    if result.not_looked_at:
        yield result.not_looked_at
    yield from (f"{count(number, 'test')} of {level}" for level, number in result.above.items())
    yield from (f"{count(one.tests, 'test')} without {one.what}" for one in result.missing)
    yield from (f"{count(number, 'test')} skipped: {why}" for why, number in result.skips.items())
    yield from (f"{count(number, KNOWN)}: {why}" for why, number in result.known_failures.items())


def _causes(result: RunJson, folder: Path) -> Iterator[ReproducedCause]:
    for one in result.causes:
        stages = dict.fromkeys(
            stage_of_reproducer(what or "-") for what in (one.what, *(of.what for of in one.further))
        )
        files = [path for stage in stages for path in sorted((folder / FOLDER / stage).glob("*"))]
        hashes = {path.relative_to(folder).as_posix(): sha256(path.read_bytes()) for path in files}
        yield ReproducedCause(one, hashes)
