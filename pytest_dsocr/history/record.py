"""A night in a few kilobytes: its verdicts in one letter for each case and stage, in a folder that is only added to."""

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
from pytest_dsocr.base.reading import Commit, Fact, Format, Identity, Moment
from pytest_dsocr.base.words import listed, short
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.models import STAGE_NAMES
from pytest_dsocr.records.names import ComparisonName
from pytest_dsocr.report.file import Ending
from pytest_dsocr.timing.identity import machine_name
from pytest_dsocr.timing.limits import SLOW_DOWN
from pytest_dsocr.timing.rounds import Measured
from pytest_dsocr.timing.run import Spread, spreads_of
from pytest_dsocr.timing.statistics import TimingVerdict

INPUTS, TIMES, OTHER = "tokenizer", "times", "other"
OUTPUT = "postprocess"
STAGES = (*STAGE_NAMES, TIMES, OTHER)
"""As the report calls them, in the order of the data; what is of none of them comes last."""
OF_STAGE: Mapping[str, str] = {
    **dict.fromkeys(("input_ids", "inputs", "dtypes"), INPUTS),
    **dict.fromkeys(("logits", "tokens"), "decode"),
    **dict.fromkeys(("read", "text", "spans", "boxes", "result.mmd", "artefacts"), OUTPUT),
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
StageName = Annotated[str, Meta(pattern=rf"\A({'|'.join(STAGES)})\Z")]
Cells = dict[str, dict[StageName, Letter]]
"""By case, which is empty for what is of no page, and by stage: a letter."""


def stage_of(what: str) -> str:
    """Return the stage of a comparison by its name: ``projector`` of ``STAGE.page/3``."""
    head = ComparisonName.parse(what).stage
    stage = OF_STAGE.get(head, INPUTS if head.startswith("images") else head)
    return stage if stage in STAGES else OTHER


def gravest(letters: Iterable[str]) -> str:
    """Return the gravest of some letters; nothing of none."""
    return max(letters, key=GRAVITY.index, default="")


def cells_of(results: Iterable[Mapping[str, Any]]) -> Cells:
    """Return the gravest letter of each case and stage, as the tests of some runs judged them."""
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
"""Parts of an identity that have to be equal for two times to compare."""


class Outcome(TypedDict):
    """What became of a run of a night."""

    name: str
    word: str
    why: str
    """Empty of one that passes."""


@dataclass(frozen=True)
class Timed:
    """What a run of the suite ``perf`` measured."""

    series: Identity
    """The machine, the subject, how it was set up, and the page: times of another do not compare."""
    quantities: Mapping[str, Spread]
    verdicts: Mapping[str, str] = field(default_factory=dict)
    """By quantity, where it was judged against a baseline."""
    accepted: Mapping[str, str] = field(default_factory=dict)
    """The quantities that are slower as the ledger of known failures accepts, each with its reason."""

    @classmethod
    def of(cls, perf: Mapping[str, Any], tests: Iterable[Mapping[str, Any]] = ()) -> Timed:
        """Return that of a run's result (``PerfRun.to_json``), of which these tests may have failed as expected."""
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
    """What is kept of the runs of a night, or of a comparison of two versions."""

    started: Moment
    ended: str
    commit: Commit
    """Empty where it is unknown."""
    word: str
    """One of ``ENDINGS``, the gravest of its runs."""
    verdict: str
    subject: str
    setting: str
    """Checkpoint, device, dtype, attention."""
    machine: str
    """Which machine and which GPUs, in words."""
    parts: Sequence[Outcome] = ()
    cells: Cells = field(default_factory=dict)
    flaky: Sequence[str] = ()
    """Tests that passed only when they were run again."""
    notes: Sequence[str] = ()
    """What the runs noticed, such as a known failure whose date is over."""
    times: Sequence[Timed] = ()
    format: Literal[1] = 1

    @property
    def day(self) -> str:
        """The day on which it began."""
        return self.started[:10]

    @property
    def short(self) -> str:
        """Its commit in a few digits."""
        return short(self.commit) or "unknown"

    @property
    def at(self) -> str:
        """Its day and commit, in words."""
        return f"{self.day} (commit {self.short})"


NIGHTS = Format(Night, "it is left out; the others count")


ENDINGS = (
    *("passes", "incomplete", "slower", "no tests", "refused", "interrupted", "internal error", "machine", "changed"),
    "wrong",
)
"""How a run ended, the gravest last; ``incomplete`` is one that passes, and left something out or lacks a shard."""
TO_JUDGE = ("baseline", "timings")
"""What is needed to judge times; where it is missing, a run fails with ``--no-skip`` alone."""


def of_runs(runs: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[Night]:
    """Yield a night for each commit and setting of some runs, as ``dsocr compare`` writes them.

    Args:
        runs: a name, and what ``dsocr.json`` holds; of an unfinished run, which says of no setting, its head.
    """
    apart: dict[tuple[str, str, str], list[tuple[str, Mapping[str, Any]]]] = {}
    for name, result in sorted(runs, key=lambda one: not one[1].get("run")):
        key = (result["commit"] or "", *_subject_and_setting(result))
        known = next((one for one in apart if one[0] == key[0]), key)
        apart.setdefault(key if result.get("run") else known, []).append((name, result))
    for (commit, subject, setting), named in apart.items():
        yield _night(named, commit, subject, setting)


def _subject_and_setting(result: Mapping[str, Any]) -> tuple[str, str]:
    run = result.get("run")
    return (run["subject"], "{checkpoint}/{device}-{dtype}-{attention}".format_map(run)) if run else ("", "")


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
    """Yield what keeps the shards of the same pages from being all of these: missing ones, and repeated ones."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for run in (result["run"] for result in results if result.get("run")):
        if run["shard"]:
            number, of = map(int, run["shard"].split("/"))
            pages = tuple(Path(page).name for page in run["pages"])  # a machine may have them in a folder of its own
            asked = (of, run["reference"], pages, *map(tuple, (run["presets"], run["prompts"])))
            found.setdefault(asked, []).append(number)
    for (of, *_), numbers in found.items():
        if missing := [f"{number}/{of}" for number in range(1, of + 1) if number not in numbers]:
            yield f"shards that are missing: {listed(missing)}"
        if repeated := [f"{number}/{of}" for number, times in Counter(numbers).items() if times > 1]:
            yield f"shards that are there more than once: {listed(repeated)}"


def _outcome(name: str, result: Mapping[str, Any]) -> Outcome:
    """Return how a run ended: one that did not finish, by the machine's fault."""
    ending = result.get("ended_as", Ending.INFRASTRUCTURE)
    word = "machine" if ending == Ending.INFRASTRUCTURE else str(ending)
    absent = [one["what"] for one in result.get("missing", ()) if one["what"] in TO_JUDGE]
    why = "" if result["verdict"] == "passes" else result["verdict"]
    if word == "passes" and absent:
        word, why = "incomplete", f"{result['verdict']}; missing: {', '.join(absent)}"
    if word == "passes" and (result["left"]["tests"] or result["left"]["not_compared"]):
        word = "incomplete"
    return {"name": name, "word": word, "why": why}


@dataclass(frozen=True)
class BenchResult:
    """What ``dsocr bench --out`` wrote, as far as a history needs it."""

    started: Moment
    verdict: str
    status: int
    b: Measured
    judgements: Sequence[_Judged]
    accepted: Mapping[str, str] = field(default_factory=dict)


class _Judged(TypedDict):
    quantity: str
    pace: str


class _Setup(TypedDict):
    checkpoint: str
    dtype: str
    attention: str


class _Identity(TypedDict):
    subject: str
    commit: Commit
    machine: dict[str, Fact]
    setup: _Setup


BENCHES = Format(BenchResult, "make it again, dsocr bench --out")
IDENTITIES = Format(_Identity, BENCHES.advice)


def read_bench(path: Path) -> BenchResult:
    """Read what ``dsocr bench --out`` wrote; raise ``DsocrError`` where it is none."""
    found = BENCHES.read(path)
    IDENTITIES.convert(found.b.identity, path)
    return found


def of_bench(result: BenchResult) -> Night:
    """Make a night of the second side of a comparison, so that its commit is on one axis with those of runs."""
    identity, setup = result.b.identity, result.b.identity["setup"]
    series = {name: identity.get(name) for name in OF_SERIES}
    verdicts = {one["quantity"]: one["pace"] for one in result.judgements}
    accepted = {name: why for name, why in result.accepted.items() if verdicts.get(name) == TimingVerdict.SLOWER}
    device = identity["machine"].get("gpu", "cpu")
    return Night(
        started=result.started,
        ended=result.started,
        commit=str(identity["commit"]),
        word={0: "passes", 1: "slower"}.get(result.status, "incomplete"),
        verdict=f"bench: {result.verdict}",
        subject=str(identity["subject"]),
        setting=f"{setup['checkpoint']}/{device}-{setup['dtype']}-{setup['attention']}",
        machine=machine_name(identity["machine"]),
        times=[Timed(series, spreads_of(result.b), verdicts, accepted)],
    )


def add(folder: Path, night: Night) -> Path:
    """Add a night to a folder as a file of its own, and return that; what is there is never changed.

    Raises:
        DsocrError: where the disk does not take it.
    """
    stamp = "".join(c for c in night.started[:19] if c not in ":-")
    path = folder / f"{stamp}-{night.short}-{uuid4().hex[:12]}{SUFFIX}"  # others may add one in the same second
    return write_whole(path, json.dumps(asdict(night), indent=1) + "\n", shared=True)


def read(folder: Path) -> tuple[list[Night], list[str]]:
    """Read every night below a folder, the oldest first; return what is wrong with which files as well."""
    nights, damaged = [], []
    for path in sorted(folder.rglob(f"*{SUFFIX}")):
        try:
            nights.append(NIGHTS.read(path))
        except DsocrError as error:
            damaged.append(str(error))
    return sorted(nights, key=lambda night: night.started), damaged
