"""Output for CI: GitHub's annotations and job summary, and properties in pytest's JUnit file."""

import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from pytest_dsocr.base.words import fit, listed
from pytest_dsocr.compare.verdict import SEVERITY, Verdict
from pytest_dsocr.report.cause import by_first, in_words, label, others_failed
from pytest_dsocr.report.comparison_result import ComparisonResult, number
from pytest_dsocr.report.document import RunJson
from pytest_dsocr.report.file import Unfinished
from pytest_dsocr.report.outcomes import JudgedTest, TestResult
from pytest_dsocr.report.result import RunResult
from pytest_dsocr.report.run_sides import RunSides
from pytest_dsocr.report.words import reference_in_words

MOST = 10
"""Number of errors that GitHub shows for a step."""
COLUMNS = 1000
IS_GITHUB, SUMMARY, WORKSPACE = "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"


def errors(result: RunJson | Unfinished) -> Iterator[str]:
    """Yield a GitHub command for each cause, or for a refused run; nothing outside of GitHub."""
    if os.environ.get(IS_GITHUB) != "true":
        return
    if isinstance(result, Unfinished):
        yield f"::error title=pytest-dsocr%3A {result.ended_as}::{_data(result.verdict)}"
        return
    for one, test in islice(by_first(result.causes, result.tests), MOST):
        title = f"{test.ended_as}: {test.nodeid.rpartition('::')[2]}"
        cause = f"{label(one)} {in_words(one)}" if one.cases else one.why
        why = "; ".join(dict.fromkeys(filter(None, (test.why, cause, others_failed(one)))))
        yield f"::error {_place(test, result)}title={_property(title)}::{_data(why)}"


def append_markdown(text: str) -> str | None:
    """Append a text to the summary of GitHub's job, if there is one; return why it failed."""
    named = os.environ.get(SUMMARY, "").strip()
    if not named:
        return None
    try:
        with Path(named).open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"{text}\n")
    except OSError as error:
        return f"the summary was not appended to {named} ({error.strerror})"
    return None


def _place(test: JudgedTest, result: RunJson) -> str:
    """Return a file and line in the checkout: the test's, or the subject's if the suites are installed."""
    workspace = Path(os.environ.get(WORKSPACE, "").strip() or Path.cwd()).resolve()
    for file, line in ((test.file, test.line), _subject_place(result)):
        if file and (path := Path(file).resolve()).is_relative_to(workspace) and path.is_file():
            return f"file={_property(path.relative_to(workspace).as_posix())},line={line},"
    return ""


def _subject_place(result: RunJson) -> tuple[str, int]:
    """Return the file and line that define the subject's factory, if it lies below the current folder."""
    module, _, factory = (result.run.subject if result.run else "").partition(":")
    file = Path(f"{module.replace('.', '/')}.py")
    if not factory.isidentifier() or not file.is_file():
        return "", 0
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    defined = re.compile(rf"(class|def) {factory}\b")
    return str(file), next((number for number, line in enumerate(lines, 1) if defined.match(line)), 1)


def _data(text: str) -> str:
    """Escape the message of a command, as GitHub's own toolkit does."""
    return fit(text, COLUMNS).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape a property of a command."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


PREFIX = "dsocr_"


def of_test(test: TestResult, case: str, run: RunSides | None) -> Iterator[tuple[str, str]]:
    """Yield the findings of a test so far as properties, without empty ones."""
    made, fault, cause = test.comparisons, test.sent.fault, test.sent.cause
    errors = [number(one.error) for one in made if one.error is not None]
    named = {
        "ended_as": test.ended_as,
        "verdict": max((one.verdict for one in made), key=SEVERITY.index, default=None),
        "case": case,
        "stage": _stage(made, fault.stage if fault else None),
        "error": f"{max(errors):.3g}" if errors else None,
        "fault": fault and fault.why,
        "cause": cause and cause.why,
        "key": run and run.key,
        "reference": run and reference_in_words(run),
    }
    yield from _nonempty(named)


def of_run(result: RunResult) -> Iterator[tuple[str, str]]:
    """Yield the identity, verdict, sides and provenance of a run as properties."""
    identity, run = result.identity, result.run
    yield from _nonempty(
        {
            "ended_as": result.ended_as,
            "verdict": result.verdict,
            "run": identity.id,
            "commit": identity.commit,
            "command": identity.command,
            "first_broke": [in_words(one) for one in result.causes if one.cases],
        }
    )
    if run is None:
        return
    sides = ("subject", "level", "checkpoint", "device", "dtype", "attention", "key")
    yield from _nonempty({name: getattr(run, name) for name in sides})
    yield from _nonempty({"reference": reference_in_words(run)})
    for name, value in run.provenance.to_json().items():
        values = {f"{name}.{key}": one for key, one in value.items()} if isinstance(value, Mapping) else {name: value}
        yield from _nonempty({f"provenance.{key}": one for key, one in values.items()})


def _stage(made: list[ComparisonResult], raised_in: str | None) -> str | None:
    """Return the first WRONG comparison, stage that raised or comparison not made; otherwise all comparisons."""
    wrong = [one.what for one in made if one.verdict == Verdict.WRONG]
    left = [one.what for one in made if not one.passes]
    found = [*wrong, *filter(None, [raised_in]), *left]
    return found[0] if found else listed([one.what for one in made]) if made else None


def _nonempty(named: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield values that are not empty, each list as one text."""
    for name, value in named.items():
        if value not in (None, "", [], (), False):
            text = "; ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            yield PREFIX + name, text
