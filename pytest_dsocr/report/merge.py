"""Results of runs over parts of the same pages, merged as if one run had made them."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.words import COLUMNS, count, fit
from pytest_dsocr.observation.config import Shard
from pytest_dsocr.report.collection import Plan
from pytest_dsocr.report.file import FINISHED, RunIdentity, read_result
from pytest_dsocr.report.outcomes import TestResult
from pytest_dsocr.report.payload import CasePayload, TestPayload
from pytest_dsocr.report.result import RunResult

OF_A_SHARD = frozenset(("shard", "level", "where", "pages", "date", "command"))
"""The entries of ``run`` and its reference in which shards may differ: what a subject offers is unknown where it was
given no page, and ``left`` says what ``pages`` came to. They must agree in everything else."""
NAMED = 3


@dataclass(frozen=True)
class Part:
    """One shard's result, and the folder that it and its pictures lie in."""

    folder: Path
    result: Mapping[str, Any]

    @property
    def unfinished(self) -> str:
        """Why it did not come to its end; empty where it did."""
        if self.result["status"] != FINISHED:
            return f"the run in {self.folder} did not finish"
        if self.result["not_ended"] or self.result["exit_status"] not in (0, 1):
            return f"the run in {self.folder} did not come to its end ({self.result['verdict']})"
        return ""

    @property
    def shard(self) -> Shard | None:
        """Which part of the pages it is, where that was asked for."""
        run = self.result.get("run")
        named = run.get("shard") if run else None
        try:
            return Shard.read(named) if named is not None else None
        except (ValueError, AttributeError):
            raise DsocrError(
                f"the run in {self.folder} calls itself shard {named!r}, which is none; run it again"
            ) from None


def read_parts(folders: Sequence[Path], *, unfinished: bool) -> Sequence[Part]:
    """Read the results to merge.

    Raises:
        DsocrError: where one cannot be read, or did not finish and that is not allowed.
    """
    parts = [Part(folder, read_result(folder, unfinished=True)) for folder in folders]
    for part in parts:
        if part.unfinished and not unfinished:
            raise DsocrError(f"{part.unfinished}; run it again, or give --unfinished, and the result does not pass")
    return parts


def merged(parts: Sequence[Part], command: str) -> dict[str, Any]:
    """Return one result as JSON values.

    Raises:
        DsocrError: where the parts are not of one run: another subject, reference, key, commit, or verdict of a case.
    """
    finished = [part for part in parts if part.result["status"] == FINISHED]
    if not finished:
        raise DsocrError("none of the runs has finished, so there is nothing to merge; run them again")
    for one, other in combinations(finished, 2):
        if why := next(_differences(one, other), ""):
            raise DsocrError(f"{one.folder} and {other.folder} are not of one run: {why}; merge only those of one")
    result = _combined(finished, command)
    result.plan.problems += [part.unfinished for part in parts if part.unfinished]
    result.plan.problems += _absent(parts)
    whole = result.to_json()
    runs = [part.result for part in finished]
    return {
        **whole,
        "ended": max(run["ended"] for run in runs),
        "planned": sum(run["planned"] for run in runs),
        "environment": runs[0]["environment"],
        "merged": [
            {"folder": str(part.folder), **{name: part.result.get(name) for name in ("id", "status", "verdict")}}
            for part in parts
        ],
    }


def _differences(one: Part, other: Part) -> Iterator[str]:
    a, b = one.result, other.result
    if a["commit"] != b["commit"]:
        yield f"their commits are {a['commit'] or 'unknown'} and {b['commit'] or 'unknown'}"
    made = [{"pytest_dsocr": one["pytest_dsocr"], **one["environment"]["versions"]} for one in (a, b)]
    yield from _unlike(*made)
    yield from _unlike(*({"selected by": one["left"]["by"], "all pages": one["left"]["whole"]} for one in (a, b)))
    if a["run"] and b["run"]:
        yield from _unlike(a["run"], b["run"])
    if one.shard and other.shard and one.shard.of != other.shard.of:
        yield f"they are shards {one.shard} and {other.shard}"
    for part, missing in ((one, _names(a, of_cases=True) - _names(b)), (other, _names(b, of_cases=True) - _names(a))):
        if missing:
            yield f"only {part.folder} has {min(missing)}"
    verdicts = {case["id"]: (case["verdict"], case["passes"]) for case in a["cases"]}
    for case in b["cases"]:
        verdict = verdicts.get(case["id"], (case["verdict"], case["passes"]))
        if verdict != (case["verdict"], case["passes"]):
            yield f"{case['id']} is {verdict[0]} in one and {case['verdict']} in the other"


def _names(result: Mapping[str, Any], *, of_cases: bool = False) -> set[str]:
    """Return the tests of a result without their pages, which each shard must have; those with a case alone, or all."""
    found = [test["nodeid"] for test in result["tests"] if test["case"] or not of_cases]
    named = found if of_cases else [*found, *result["not_ended"], *result["left"]["names"]]
    return {name.partition("[")[0].rpartition("/")[2] for name in named}


def _unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Say in what two objects differ, and in the objects that they hold."""
    for name in dict.fromkeys(name for name in (*one, *other) if name not in OF_A_SHARD):
        a, b = one.get(name), other.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from (f"{name}: {why}" for why in _unlike(a, b))
        elif a != b:
            yield f"{name} is {fit(str(a), COLUMNS)} and {fit(str(b), COLUMNS)}"


def _absent(parts: Sequence[Part]) -> Iterator[str]:
    """Say which shards are not there, where any is called one."""
    found = [part.shard for part in parts if part.shard]
    numbers = {shard.number for shard in found}
    absent = [number for number in range(1, found[0].of + 1) if number not in numbers] if found else []
    yield from (f"shard {number}/{found[0].of} is not there" for number in absent[:NAMED])
    if more := absent[NAMED:]:
        yield f"nor are {count(len(more), 'more shard')}"


def _combined(parts: Sequence[Part], command: str) -> RunResult:
    """Take every test and every case, in the order of the whole run."""
    runs = [part.result for part in parts]
    identity = RunIdentity(uuid.uuid4().hex, min(run["started"] for run in runs), runs[0]["commit"], command)
    result = RunResult(identity, Plan())
    for part in parts:
        _add_run(result, part.result)
        _add_plan(result.plan, part.result)
        cases = {case["id"]: _payload_of(case, part, len(result.cases)) for case in part.result["cases"]}
        for case in cases.values():
            result.add_case(case)
        for test in part.result["tests"]:
            result.add_test(_test_of(test, cases.get(test["case"])))
    return result


def _add_run(result: RunResult, part: Mapping[str, Any]) -> None:
    run = part["run"]
    if run:
        before: Any = result.run or {"pages": [], "level": None}
        pages = [*dict.fromkeys([*before["pages"], *run["pages"]])]
        whole: Any = {**run, "shard": None, "pages": pages, "level": run["level"] or before["level"]}
        result.run = whole
    result.perf = result.perf or part["perf"]
    for elapsed in part.get("elapsed", ()):
        own: Any = {**elapsed, "worker": f"{run['shard'] or '' if run else ''} {elapsed['worker']}".strip()}
        result.add_elapsed(f"{own['worker']} {part['id']}", own)
    left, more = result.left, part["left"]
    both: Any = {name: left[name] + more[name] for name in ("tests", "of", "names")}
    pages = [page for page in more["whole"] if page in {*left["listed"], *more["listed"]}]
    both |= {"by": more["by"], "listed": pages, "whole": more["whole"]}
    result.left = both
    result.notes += [note for note in part["notes"] if note not in result.notes]


def _add_plan(plan: Plan, part: Mapping[str, Any]) -> None:
    plan.add([*(test["nodeid"] for test in part["tests"]), *part["not_ended"]])
    plan.ended.update({test["nodeid"] for test in part["tests"]} - {*part["not_ended"]})
    plan.uncollected += part["uncollected"]
    plan.others_failed |= part["others_failed"]
    statuses = {plan.exit_status or 0, part["exit_status"]}
    plan.exit_status = 1 if 1 in statuses else max(statuses)


def _payload_of(case: Mapping[str, Any], part: Part, before: int) -> CasePayload:
    """Return a case as the run's own limits judged it, with its place in the whole run, or behind those ``before``."""
    place, run = before + case["place"], part.result["run"]
    if part.shard:
        place = part.shard.place(case["place"], len(run["presets"]) * len(run["prompts"]))
    own = {name: case[name] for name in CasePayload.__annotations__ if name in case}
    made: Any = {**own, "passes": case["within"], "place": place}
    payload: CasePayload = made
    return payload


def _test_of(test: Mapping[str, Any], case: CasePayload | None) -> TestResult:
    payload: TestPayload = {
        "case": case,
        "comparisons": test["comparisons"],
        "left_out": test["left_out"],
        "reason": test["own_reason"],
        "promised": test["promised"],
        "looser": test["looser"],
        "cause": test.get("cause"),
    }
    if test["fault"]:
        payload["fault"] = test["fault"]
    outcome = "passed" if test["outcome"] == "flaky" else test["outcome"]
    place = None if test["file"] is None else (test["file"], test["line"])
    return TestResult(
        test["nodeid"], outcome, test["reason"], payload, test["failed_before"], test["rerun"] or "", place
    )
