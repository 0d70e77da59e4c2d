"""A night as a page, as Markdown, and as annotations where CI is GitHub's."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.files import templates, write_whole
from pytest_dsocr.foundation.words import count
from pytest_dsocr.night.jobs import DOCTOR_JSON, JUNIT, LOG
from pytest_dsocr.night.state import PASSES, STATE_NAME, Entry, NightState, Step, result_in
from pytest_dsocr.report import ci
from pytest_dsocr.report.file import INDEX_NAME, JSON_NAME
from pytest_dsocr.report.views import OF_CAUSES, SUMMARY_NAME, cell, part, table, wrong
from pytest_dsocr.report.words import counts

TEMPLATE = "index.html.j2"
FILES = (INDEX_NAME, JSON_NAME, DOCTOR_JSON, JUNIT, LOG)
Results = Sequence[tuple[Entry, Mapping[str, Any]]]
"""Each job with its result; an empty one where there is none."""


def results(night: NightState, out: Path) -> Results:
    """Read what each job of a night wrote to its end."""
    return [(entry, result_in(out / entry.name) if entry.ended else {}) for entry in night.entries]


def write_views(night: NightState, out: Path) -> None:
    """Write ``index.html`` and ``summary.md``; raise ``DsocrError`` where the disk does not take them."""
    found = results(night, out)
    environment = templates(Path(__file__).parent)
    environment.filters |= {"of": count}
    page = environment.get_template(TEMPLATE).render(
        night=night,
        rows=[(entry, _in_brief(result), _files(entry, out)) for entry, result in found],
        config=asdict(night.config),
        state=STATE_NAME,
    )
    write_whole(out / INDEX_NAME, page.encode("utf-8", "replace"))
    write_whole(out / SUMMARY_NAME, markdown(night, found).encode("utf-8", "replace"))


def markdown(night: NightState, found: Results) -> str:
    """Render the night for a comment, a mail, or a job's summary."""
    return "\n".join(_lines(night, found)) + "\n"


def _in_brief(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return how much a result compared, and its cases that are not right."""
    wrong = [case["id"] for case in result.get("cases", ()) if case.get("first_wrong")]
    return {"counts": counts(result.get("counts", {})), "wrong": wrong, "comparisons": result.get("comparisons")}


def _files(entry: Entry, out: Path) -> list[str]:
    return [name for name in FILES if entry.ended and (out / entry.name / name).is_file()]


def _lines(night: NightState, found: Results) -> Iterator[str]:
    config = night.config
    yield f"## DeepSeek-OCR, a night: {night.verdict.partition(':')[0]}"
    yield ""
    yield cell(night.verdict)
    yield ""
    about = (
        ("model", ", ".join((config.subject, config.checkpoint, config.device, config.dtype, config.attention))),
        ("commit", night.commit or "unknown"),
        ("time", f"{night.started} to {night.ended or 'now'}"),
        ("GPUs", "; ".join(night.facts.get("gpus", ())) or "none"),
    )
    yield from table(("", ""), about)
    jobs = [
        (one.name, one.word, str(len(one.pages) or ""), f"{one.seconds:.0f}", one.why or one.verdict)
        for one in night.entries
    ]
    yield from part("Jobs", table(("job", "verdict", "pages", "seconds", "what was found"), jobs))
    causes = [(entry.name, *cause) for entry, result in found for cause in wrong(result)]
    yield from part("What is wrong", table(("job", *OF_CAUSES), causes))
    failed = (one for one in night.entries if one.grade not in (None, PASSES))
    yield from part("To run again", (f"    {one.command}" for one in failed))


def for_github(found: Results) -> Iterator[str]:
    """Yield GitHub's commands: of each job the tests that failed, or why there is nothing of it."""
    for entry, result in found:
        if entry.grade in (None, PASSES):
            continue
        of_tests = [*ci.errors(result)] if result else []
        kind = "warning" if entry.step is Step.LEFT_OUT else "error"
        text = f"{entry.word}; {entry.why or entry.verdict or f'exit status {entry.status}'}"
        yield from of_tests or ci.annotation(kind, f"night: {entry.name}", text)
