"""Nights as files of a few kilobytes, with one letter for each case and stage. A folder of nights is only added to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict
from uuid import uuid4

from msgspec import Meta

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import write_whole
from pytest_dsocr.base.reading import Commit, Format, Identity, Moment
from pytest_dsocr.base.words import listed, short
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.models import STAGE_NAMES
from pytest_dsocr.records.names import ComparisonKind, ComparisonName
from pytest_dsocr.report import strip
from pytest_dsocr.report.file import Ending
from pytest_dsocr.timing.limits import SLOW_DOWN
from pytest_dsocr.timing.run import Spread

TIMES, OTHER = "times", "other"
STAGES = (*STAGE_NAMES, TIMES, OTHER)
"""Stages under the report's names, in the order of the data, then times and everything else."""
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
StageName = Annotated[str, Meta(pattern=rf"\A({'|'.join(STAGES)})\Z")]
Cells = dict[str, dict[StageName, Letter]]
"""A letter by case and stage. The case is empty for tests without a page."""


def stage_of(what: str) -> str:
    """Return the stage of a comparison, such as ``projector`` for ``projector.page/3``."""
    return TIMES if ComparisonName.parse(what).kind is ComparisonKind.TIME else strip.stage_of(what, OTHER)


def gravest(letters: Iterable[str]) -> str:
    """Return the letter of the worst verdict, or an empty text."""
    return max(letters, key=GRAVITY.index, default="")


def cells_of(results: Iterable[Mapping[str, Any]]) -> Cells:
    """Return the letter of each case's and stage's worst verdict in all runs."""
    found: Cells = {}
    for result in results:
        for test in result.get("tests", ()):
            case = found.setdefault(test["case"] or "", {})
            for stage, letter in _letters(test):
                case[stage] = gravest(filter(None, (case.get(stage), letter)))
    return {case: stages for case, stages in found.items() if stages}


def _letters(test: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for one in test["comparisons"]:
        if one["verdict"] != Verdict.NOT_COMPARED or not one["passes"]:
            yield stage_of(one["what"]), LETTERS[one["verdict"]]
    if test["why"] and not any(one["verdict"] == Verdict.WRONG for one in test["comparisons"]):
        stage = (test["fault"] or {}).get("stage")
        letter = MACHINE if test["ended_as"] == Ending.INFRASTRUCTURE else WRONG
        yield stage_of(stage) if stage else OTHER, letter


SUFFIX = ".night.json"
OF_SERIES = ("machine", "subject", "setup", "page")
"""Parts of an identity that must be equal if two times are to be compared."""


class Outcome(TypedDict):
    """Outcome of one run of a night."""

    name: str
    word: str
    why: str
    """Reason; empty if the run passes."""


@dataclass(frozen=True)
class Timed:
    """Times that a run of the suite ``perf`` measured."""

    series: Identity
    """Machine, subject, setup and page; only times of equal series are compared."""
    quantities: Mapping[str, Spread]
    verdicts: Mapping[str, str] = field(default_factory=dict)
    """Verdicts by quantity, if there was a baseline."""
    accepted: Mapping[str, str] = field(default_factory=dict)
    """Reasons by quantity, if the list of known failures accepts that it is slower."""

    @classmethod
    def of(cls, perf: Mapping[str, Any], tests: Iterable[Mapping[str, Any]] = ()) -> Timed:
        """Read the times in a run's result (``PerfRun.to_json``), and accepted slow-downs in its tests."""
        expected = [
            (SLOW_DOWN.search(test["nodeid"]), test["reason"]) for test in tests if test["outcome"] == "xfailed"
        ]
        series = {name: perf["identity"].get(name) for name in OF_SERIES}
        medians, quartiles = perf["median_ms"], perf["quartiles_ms"]
        quantities = {name: Spread(medians[name], *ends) for name, ends in quartiles.items() if name in medians}
        verdicts = {one["quantity"]: one["pace"] for one in perf["judgements"]}
        return cls(series, quantities, verdicts, {name[1]: reason for name, reason in expected if name})


@dataclass(frozen=True)
class Night:
    """Summary of one night's runs, or of a comparison of two versions."""

    started: Moment
    ended: str
    commit: Commit
    """Commit of the runs; empty if unknown."""
    word: str
    """Worst ending of its runs, one of ``ENDINGS``."""
    verdict: str
    subject: str
    setting: str
    """Checkpoint, device, dtype, attention."""
    machine: str
    """Platform and GPUs."""
    parts: Sequence[Outcome] = ()
    cells: Cells = field(default_factory=dict)
    flaky: Sequence[str] = ()
    """Tests that passed only when rerun."""
    notes: Sequence[str] = ()
    """Notes of the runs, such as a known failure that is past its date."""
    times: Sequence[Timed] = ()
    format: Literal[1] = 1

    @property
    def day(self) -> str:
        """Day on which it started."""
        return self.started[:10]

    @property
    def short(self) -> str:
        """Short commit hash, or ``unknown``."""
        return short(self.commit) or "unknown"

    @property
    def at(self) -> str:
        """Day and commit, for messages."""
        return f"{self.day} (commit {self.short})"


NIGHTS = Format(Night, "it is left out; the others count")


ENDINGS = (
    *("passes", "incomplete", "slower", "no tests", "refused", "interrupted", "internal error", "machine", "changed"),
    "wrong",
)
"""Endings of a run, the worst last. An ``incomplete`` run passes, but skipped something or lacks a shard."""
TO_JUDGE = ("baseline", "timings")
"""Things needed to judge times. If one is missing, a run fails only with ``--no-skip``."""


def of_runs(runs: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[Night]:
    """Yield a night for each commit and setting among the results of ``dsocr compare``.

    Args:
        runs: a name and the content of ``dsocr.json``; an unfinished run has its head only, without a setting.
    """
    apart: dict[tuple[str, str, str], list[tuple[str, Mapping[str, Any]]]] = {}
    for name, result in sorted(runs, key=lambda one: not one[1].get("run")):
        run = result.get("run")
        setting = "{checkpoint}/{device}-{dtype}-{attention}".format_map(run) if run else ""
        key = (result["commit"] or "", run["subject"] if run else "", setting)
        known = next((one for one in apart if one[0] == key[0]), key)
        apart.setdefault(key if run else known, []).append((name, result))
    for (commit, subject, setting), named in apart.items():
        yield _night(named, commit, subject, setting)


def _night(named: Sequence[tuple[str, Mapping[str, Any]]], commit: str, subject: str, setting: str) -> Night:
    parts, results = [_outcome(*one) for one in named], [result for _, result in named]
    bad = [f"{part['name']}: {part['why']}" if parts[1:] else part["why"] for part in parts if part["why"]]
    not_once = [*_not_once(results)]
    gpus = {one["device"] for result in results for one in result.get("elapsed", ())} - {"cpu"}
    platform = results[0].get("environment", {}).get("platform", "unknown")
    return Night(
        started=min(result["started"] for result in results),
        ended=max(result["ended"] or "" for result in results),
        commit=commit,
        word=max((*(part["word"] for part in parts), "incomplete" if not_once else "passes"), key=ENDINGS.index),
        verdict="; ".join([*bad, *not_once]) or "passes",
        subject=subject,
        setting=setting,
        machine=", ".join([platform, *sorted(gpus)]),
        parts=parts,
        cells=cells_of(results),
        flaky=[test for result in results for test in result.get("flaky", ())],
        notes=list(dict.fromkeys(note for result in results for note in result.get("notes", ()))),
        times=[Timed.of(result["perf"], result["tests"]) for result in results if result.get("perf")],
    )


def _not_once(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a message for missing shards and one for repeated shards of the same pages."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for run in (result["run"] for result in results if result.get("run")):
        if run["shard"]:
            number, of = map(int, run["shard"].split("/"))
            pages = tuple(Path(page).name for page in run["pages"])  # each machine may keep them in another folder
            asked = (of, run["reference"], pages, *map(tuple, (run["presets"], run["prompts"])))
            found.setdefault(asked, []).append(number)
    for (of, *_), numbers in found.items():
        if missing := [f"{number}/{of}" for number in range(1, of + 1) if number not in numbers]:
            yield f"missing shards: {listed(missing)}"
        if repeated := [f"{number}/{of}" for number, times in Counter(numbers).items() if times > 1]:
            yield f"repeated shards: {listed(repeated)}"


def _outcome(name: str, result: Mapping[str, Any]) -> Outcome:
    """Return how a run ended. An unfinished run counts as a failure of the machine."""
    ending = result.get("ended_as", Ending.INFRASTRUCTURE)
    word = "machine" if ending == Ending.INFRASTRUCTURE else str(ending)
    absent = [one["what"] for one in result.get("missing", ()) if one["what"] in TO_JUDGE]
    why = "" if result["verdict"] == "passes" else result["verdict"]
    if word == "passes" and absent:
        word, why = "incomplete", f"{result['verdict']}; missing: {', '.join(absent)}"
    if word == "passes" and (result["left"]["tests"] or result["left"]["not_compared"]):
        word = "incomplete"
    return {"name": name, "word": word, "why": why}


def add(folder: Path, night: Night) -> Path:
    """Write a night to a new file in ``folder``, and return the file's path.

    Raises:
        DsocrError: if the file cannot be written.
    """
    stamp = "".join(c for c in night.started[:19] if c not in ":-")
    path = folder / f"{stamp}-{night.short}-{uuid4().hex[:12]}{SUFFIX}"  # another may start in the same second
    return write_whole(path, json.dumps(asdict(night), indent=1) + "\n", shared=True)


def read(folder: Path) -> tuple[list[Night], list[str]]:
    """Read all nights below ``folder``, sorted by start; return a message for each unreadable file as well."""
    nights, damaged = [], []
    for path in sorted(folder.rglob(f"*{SUFFIX}")):
        try:
            nights.append(NIGHTS.read(path))
        except DsocrError as error:
            damaged.append(str(error))
    return sorted(nights, key=lambda night: night.started), damaged
