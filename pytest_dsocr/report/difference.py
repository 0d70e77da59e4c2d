"""Difference of two results: comparisons that became wrong, right, slower or faster."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.records.names import ComparisonKind, ComparisonName
from pytest_dsocr.report.document import RunJson
from pytest_dsocr.report.file import EXIT_STATUS, UNDECIDED, Ending
from pytest_dsocr.report.outcomes import JudgedTest
from pytest_dsocr.report.run_sides import RunSides

RIGHT, WRONG, OPEN = "right", "wrong", "not compared"
GRAVITY = (RIGHT, OPEN, WRONG)


class DiffStatus(IntEnum):
    """The exit status of ``dsocr diff``."""

    NOTHING_WORSE = 0
    WRONG = EXIT_STATUS[Ending.WRONG]
    SLOWER = EXIT_STATUS[Ending.SLOWER]
    NOT_COMPARABLE = UNDECIDED


class State(NamedTuple):
    """State of one comparison, or of a test that made none."""

    word: str
    reason: str


NOTHING = State(OPEN, "")
"""State of what a file does not have."""


class ResultChange(NamedTuple):
    """Change of a state; ``before`` or ``after`` is empty if that file lacks it."""

    case: str
    what: str
    before: str
    after: str


class ChangeKind(StrEnum):
    """Kinds of changes, in the order of the report."""

    WRONG = "became wrong"
    NEW_WRONG = "new and wrong"
    """Not compared before."""
    SLOWER = "slower"
    LEFT = "not compared"
    """Not compared any more."""
    RIGHT = "became right"
    FASTER = "faster"
    NEW = "newly compared"
    """And right."""


@dataclass(frozen=True)
class ResultDifference:
    """Changes from the first result to the second."""

    obstacles: Sequence[str] = ()
    """Why the two cannot be compared at all."""
    changes: Mapping[ChangeKind, list[ResultChange]] = field(default_factory=lambda: {kind: [] for kind in ChangeKind})
    common: int = 0
    """Number of comparisons in both."""
    times_left_out: str = ""
    """Why times are not compared, where either file has some."""

    @property
    def status(self) -> DiffStatus:
        """Exit status: wrong results count most, then undecided ones, then slower ones."""
        if self.changes[ChangeKind.WRONG] or self.changes[ChangeKind.NEW_WRONG]:
            return DiffStatus.WRONG
        if self.obstacles or self.changes[ChangeKind.LEFT]:
            return DiffStatus.NOT_COMPARABLE
        return DiffStatus.SLOWER if self.changes[ChangeKind.SLOWER] else DiffStatus.NOTHING_WORSE


def difference(old: RunJson, new: RunJson) -> ResultDifference:
    """Compare two results."""
    if obstacles := [*_obstacles(old, new)]:
        return ResultDifference(obstacles)
    before, after = states(old), states(new)
    found = ResultDifference(common=len(before.keys() & after.keys()), times_left_out=why_times_are_left_out(old, new))
    mended = {*_mended(old, new)}
    for key in dict.fromkeys([*after, *before]):
        now = after.get(key, State(RIGHT, "its tests pass") if key in mended else NOTHING)
        was = before.get(key, NOTHING)
        if was.word != now.word:
            is_time = ComparisonName.parse(key[1]).kind is ComparisonKind.TIME
            kind = _kind(was, now, is_time=is_time)
            found.changes[kind].append(ResultChange(*key, was.reason, now.reason))
    if not found.times_left_out:
        _times(found, old, new)
    return found


def states(result: RunJson) -> dict[tuple[str, str], State]:
    """Return the gravest state of each comparison by case, and of each test besides its comparisons."""
    found: dict[tuple[str, str], State] = {}
    for test in result.tests:
        name = _name(test)
        for what, state in ((name, _of_itself(test)), *_of_comparisons(test)):
            key = (test.case or ("" if what == name else name), what)
            found[key] = max(found.get(key, state), state, key=lambda one: GRAVITY.index(one.word))
    return found


def _name(test: JudgedTest) -> str:
    """Return a test's id without its folder, which depends on where pytest was called."""
    return str(test.nodeid.rpartition("/")[2])


def _of_comparisons(test: JudgedTest) -> Iterator[tuple[str, State]]:
    for one in test.comparisons:
        made = one.verdict != Verdict.NOT_COMPARED
        word = WRONG if one.verdict == Verdict.WRONG else RIGHT if made and one.passes else OPEN
        yield one.what, State(word, f"{one.verdict}: {one.measured}")


def _of_itself(test: JudgedTest) -> State:
    """Return the state of a test besides its comparisons: passed, skipped, or failed by another error."""
    if test.outcome == "skipped" or test.ended_as == Ending.INFRASTRUCTURE:
        return State(OPEN, test.why or test.reason)
    of_comparisons = any(one.verdict == Verdict.WRONG for one in test.comparisons)
    return State(WRONG, test.why) if test.why and not of_comparisons else State(RIGHT, test.outcome)


def _mended(old: RunJson, new: RunJson) -> Iterator[tuple[str, str]]:
    """Yield wrong comparisons of tests that pass now; some, such as ``read``, are made only if they fail."""
    passing = {_name(test) for test in new.tests if test.outcome == "passed"}
    holders: dict[tuple[str, str], list[str]] = {}
    for test in old.tests:
        for one in test.comparisons:
            if one.verdict == Verdict.WRONG:
                holders.setdefault((test.case or _name(test), one.what), []).append(_name(test))
    yield from (key for key, tests in holders.items() if passing.issuperset(tests))


def _kind(old: State, new: State, *, is_time: bool) -> ChangeKind:
    if new.word == WRONG:
        return ChangeKind.SLOWER if is_time else ChangeKind.WRONG if old is not NOTHING else ChangeKind.NEW_WRONG
    if new.word == OPEN:
        return ChangeKind.LEFT
    if old.word == WRONG:
        return ChangeKind.FASTER if is_time else ChangeKind.RIGHT
    return ChangeKind.NEW


def _obstacles(old: RunJson, new: RunJson) -> Iterator[str]:
    if not (old.run and new.run):
        yield "one of the two compared nothing with a reference"
        return
    if old.run.key != new.run.key:
        yield f"the references' keys differ: {old.run.key} and {new.run.key}"
    made, remade = old.run.provenance, new.run.provenance
    if made.checkpoint_sha256 != remade.checkpoint_sha256:
        yield "the checkpoints' weights differ"
    if made.vendor_sha256 != remade.vendor_sha256:
        yield "the vendor's files differ"
    was, now = _limits(old, old.run), _limits(new, new.run)
    if differing := [name for name in {**was, **now} if was.get(name) != now.get(name)]:
        limits = (f"{name} {was.get(name, USUAL)}, now {now.get(name, USUAL)}" for name in differing)
        yield f"the limits differ: {'; '.join(limits)}"
    if not {*states(old)} & {*states(new)}:
        yield "they have no comparison in common"


DECIDING = ("dtype", "device", "attention")
"""Choices of the subject that decide the usual limits, with the reference's key."""
USUAL = "as usual"


def _limits(result: RunJson, run: RunSides) -> dict[str, Any]:
    """Return every choice that decides verdicts, by name; other choices have their usual value."""
    lost, settings = result.budget.lost if result.budget else (), run.settings
    return {
        **{name: getattr(run, name) for name in DECIDING},
        **{f"slower {name}": most for name, most in settings["max_slowdown"].items()},
        **{name: settings[name] for name in ("max_new_tokens", "repeat") if settings[name] is not None},
        **settings["tolerances"],
        **{name: one.allowed for name, one in result.looser.items()},
        **{f"budget {name}": most for name, most in settings["quantization_budget"].items()},
        **{f"budget {one.name}": one.allowed for one in lost if one.allowed is not None},
    }


def why_times_are_left_out(old: RunJson, new: RunJson) -> str:
    """Return why the times of two results are not compared; empty if they are, or if neither has any."""
    was, now = old.perf, new.perf
    if not was and not now:
        return ""
    if not was or not now:
        return "only one of the two measured times"
    if not was["baseline"] or was["baseline"] != now["baseline"]:
        return "times can be compared only against a common baseline, and the two have none"
    return ""


def _times(found: ResultDifference, old: RunJson, new: RunJson) -> None:
    """Add quantities with separate intervals and a ratio that exceeds the new run's limit."""
    if not (old.perf and new.perf):
        return
    before = {one["quantity"]: one for one in old.perf["judgements"]}
    for now in new.perf["judgements"]:
        was, what = before.get(now["quantity"]), ComparisonKind.TIME.name_of(now["quantity"])
        if was is None or "NOT-COMPARED" in (was["pace"], now["pace"]):
            continue
        if not all(one[name] for one in (was, now) for name in ("ratio", "low", "high")):
            continue
        ratio, most = now["ratio"] / was["ratio"], 1 + now["limit"]
        slower, faster = found.changes[ChangeKind.SLOWER], found.changes[ChangeKind.FASTER]
        apart = slower if now["low"] > was["high"] and ratio > most else None
        apart = faster if now["high"] < was["low"] and ratio < 1 / most else apart
        if apart is not None and what not in {one.what for one in (*slower, *faster)}:
            apart.append(
                ResultChange("", what, f"{was['after_ms']:.3g} ms", f"{now['after_ms']:.3g} ms, {ratio:.3f} times")
            )
