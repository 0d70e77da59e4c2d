"""The properties of a test and of a run in pytest's own JUnit file, as names and texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pytest_dsocr.compare.verdict import SEVERITY, Verdict
from pytest_dsocr.foundation.words import listed
from pytest_dsocr.report import breaks
from pytest_dsocr.report.payload import ComparisonPayload, number
from pytest_dsocr.report.words import likely_cause, reference_in_words

if TYPE_CHECKING:
    from pytest_dsocr.report.payload import RunPayload
    from pytest_dsocr.report.result import RunResult
    from pytest_dsocr.report.tested import TestResult

PREFIX = "dsocr_"


def of_test(test: TestResult, case: str, run: RunPayload | None) -> Iterator[tuple[str, str]]:
    """Yield what a test found; what does not apply to it is left out.

    Args:
        test: with its outcome so far.
        case: the id of its case; empty where it is of none.
        run: what is compared with what, where both sides are there.
    """
    made, fault = test.comparisons, test.payload.get("fault")
    named = {
        "ended_as": test.ended_as,
        "verdict": _gravest(made),
        "case": case,
        "stage": _stage(made, fault and fault["stage"]),
        "error": _error(made),
        "fault": fault and fault["why"],
        "cause": _gravest(made) == Verdict.WRONG and _cause(test),
        "key": run and run["key"],
        "reference": run and reference_in_words(run),
    }
    yield from _said(named)


def of_run(result: RunResult) -> Iterator[tuple[str, str]]:
    """Yield which run it is, what was compared with what, and how both were made."""
    identity, run = result.identity, result.run
    yield from _said(
        {
            "ended_as": result.ended_as,
            "verdict": result.verdict,
            "run": identity.id,
            "commit": identity.commit,
            "command": identity.command,
            "first_broke": [breaks.in_words(one) for one in result.broke],
        }
    )
    if run is None:
        return
    sides = ("subject", "level", "checkpoint", "device", "dtype", "attention", "key")
    yield from _said({name: run.get(name) for name in sides})
    yield from _said({"reference": reference_in_words(run)})
    for name, value in run["provenance"].items():
        told = {f"{name}.{key}": one for key, one in value.items()} if isinstance(value, Mapping) else {name: value}
        yield from _said({f"provenance.{key}": one for key, one in told.items()})


def _gravest(made: list[ComparisonPayload]) -> str | None:
    return max((one["verdict"] for one in made), key=lambda verdict: SEVERITY.index(Verdict(verdict)), default=None)


def _cause(test: TestResult) -> str | None:
    found = test.payload.get("case")
    return likely_cause(found) if found else None


def _stage(made: list[ComparisonPayload], raised_in: str | None) -> str | None:
    """Give the first that is wrong, else where a side raised, else the first not compared, else all that were."""
    wrong = [one["what"] for one in made if one["verdict"] == Verdict.WRONG]
    left = [one["what"] for one in made if not one["passes"]]
    found = [*wrong, *filter(None, [raised_in]), *left]
    return found[0] if found else listed([one["what"] for one in made]) if made else None


def _error(made: list[ComparisonPayload]) -> str | None:
    """Give the largest relative error of a tensor."""
    errors = [number(one["error"]) for one in made if one["error"] is not None]
    return f"{max(errors):.3g}" if errors else None


def _said(named: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield what there is, each list as one text."""
    for name, value in named.items():
        if value not in (None, "", [], False):
            told = "; ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            yield PREFIX + name, told
