"""A night: what is done already, what still fits, each job after the other."""

import os
import shlex
import subprocess
from collections.abc import Generator
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import made_anew, write_whole
from pytest_dsocr.foundation.words import Command, count
from pytest_dsocr.night.history import html
from pytest_dsocr.night.jobs import LOG, command, environment, jobs, may_miss, run_command
from pytest_dsocr.night.record import Night, Outcome, about, add, read
from pytest_dsocr.night.state import (
    DOCTOR,
    MACHINE,
    PARTS,
    WRONG,
    Config,
    Entry,
    NightState,
    Step,
    code_here,
    earlier,
    is_whole,
    key_of,
)
from pytest_dsocr.night.views import Results, for_github, markdown, results, write_views
from pytest_dsocr.pages.named import pages_in
from pytest_dsocr.pages.page_list import BadPage
from pytest_dsocr.perf.probe.machine import machine, versions
from pytest_dsocr.report import ci
from pytest_dsocr.report.file import INDEX_NAME, now, read_result

GPU_FACTS = "name,driver_version,memory.total,memory.used,clocks.sm,temperature.gpu"
SILENT = {ci.SUMMARY: "", ci.IS_GITHUB: ""}
"""The night tells GitHub what its parts found, once, and not each part by itself."""
LITTLE_S = 1.0
"""Time in which nothing is worth beginning."""


def run(config: Config, *, again: bool = False) -> Generator[str, None, int]:
    """Run what is to do, and yield what to tell the user; ``config.out`` holds the results.

    Args:
        config: the night's.
        again: do everything anew.

    Returns:
        The worst status of its parts.

    Raises:
        DsocrError: where a part or a page has no meaning, or the results cannot be written.
        KeyboardInterrupt: where it is interrupted; what was done is kept.
    """
    out, started_s = Path(config.out), monotonic()
    before = {} if again else earlier(out)
    commit, code = code_here(config.commit)
    night = NightState(commit, config, facts=facts())
    night.entries = [*jobs(config, {name: _files(getattr(config, name)) for name in ("pages", "live_pages")})]
    yield f"{count(len(night.entries), 'job')}, {config.minutes:g} minutes, into {out}"
    if not code:
        yield "no commit is known here, so that nothing of an earlier run is taken over; name one with --commit"
    for entry in night.entries:
        _prepare(entry, config, code, len(night.facts["gpus"]))
    for place, entry in enumerate(night.entries):
        old = before.get(entry.name)
        if old and old.key == entry.key != "" and is_whole(old, out / entry.name):
            night.entries[place] = entry = old
            yield f"{entry.name:<16}is done, since {old.ended}"
        else:
            left_s = 60 * config.minutes - (monotonic() - started_s)
            entry.why = _too_long(entry, night.entries[:place], left_s)
            entry.step = Step.LEFT_OUT if entry.why else Step.RUNNING
            write(night, out)
            if entry.step is Step.RUNNING:
                yield f"{entry.name:<16}begins, {count(len(entry.pages), 'page')}"
                try:
                    _do(entry, config, left_s)
                finally:
                    write(night, out)
        yield f"{entry.name:<16}{entry.word}, {entry.seconds:.0f} s; {entry.why or entry.verdict}"
    night.ended = now()
    write(night, out)
    return (yield from finish(night, out))


def finish(night: NightState, out: Path) -> Generator[str, None, int]:
    """Report to CI a night that has ended, and add it to those before; return its status."""
    found = results(night, out)
    yield from map(Command, islice(for_github(found), ci.MOST))
    if problem := ci.append(markdown(night, found)):
        yield problem
    yield f"{night.verdict}; see {out / INDEX_NAME}"
    if night.config.history:
        try:
            yield f"all nights are in {_keep(night, found, Path(night.config.history))}"
        except DsocrError as error:
            yield f"this night is not among the others: {error}"
            return night.status if night.status == WRONG else MACHINE
    return night.status


def facts() -> dict[str, Any]:
    """Return what is known of the machine without asking torch for a GPU, which would hold memory there."""
    asked = ["nvidia-smi", f"--query-gpu={GPU_FACTS}", "--format=csv,noheader"]
    try:
        gpus = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False).stdout.splitlines()
        gpus = [line for k, line in enumerate(gpus) if _is_visible(k)]
    except (OSError, subprocess.TimeoutExpired):
        gpus = []
    return {"machine": machine("cpu"), "versions": versions(), "gpus": gpus}


def _is_visible(gpu: int) -> bool:
    """Return whether CUDA_VISIBLE_DEVICES shows a GPU; names in place of numbers are taken for those of the first."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return True
    shown = [one.strip() for one in named.split(",") if one.strip()]
    return str(gpu) in shown if all(one.isdigit() for one in shown) else gpu < len(shown)


def _prepare(entry: Entry, config: Config, code: str, gpus: int) -> None:
    words = command(entry, config, Path(config.out) / entry.name, len(config.gpus) or gpus)
    entry.key = key_of(entry, words, environment(entry, config).items(), code, config)
    entry.command = shlex.join(words)


def _do(entry: Entry, config: Config, left_s: float) -> None:
    """Run a job in an empty folder, and note how it ended."""
    folder = made_anew(Path(config.out) / entry.name)
    entry.step, entry.why = Step.ENDED, "interrupted"
    variables = {**SILENT, **environment(entry, config)}
    try:
        entry.status, entry.seconds, entry.why = run_command(
            shlex.split(entry.command), folder / LOG, variables, left_s, config.grace_seconds
        )
    finally:
        entry.ended = now()
    entry.step = Step.ENDED if entry.why else Step.DONE
    if entry.part == DOCTOR:
        entry.verdict = "the machine has what is needed" if entry.status == 0 else "the machine lacks something"
    else:
        note_result(entry, folder, config)


def note_result(entry: Entry, folder: Path, config: Config) -> None:
    """Note what a job's result says."""
    try:
        result = read_result(folder)
    except DsocrError as error:
        entry.verdict = str(error)
        entry.status = entry.status or MACHINE
        return
    lacking = dict.fromkeys(one["what"] for one in result["missing"])
    entry.lacking = tuple(what for what in lacking if what not in may_miss(PARTS[entry.part], config))
    missing = f"; missing: {', '.join(entry.lacking)}" if entry.lacking else ""
    entry.verdict = f"{result['verdict']}, {count(result['comparisons'], 'comparison')}{missing}"


def _too_long(job: Entry, done: list[Entry], left_s: float) -> str:
    """Say why a job no longer fits: by what the pages of its part have taken this night."""
    if left_s < LITTLE_S:
        return "the time is over"
    of_part = [
        entry for entry in done if entry.part == job.part and entry.pages and entry.seconds and entry.step is Step.DONE
    ]
    if not of_part:
        return ""
    needed_s = len(job.pages) * max(entry.seconds / len(entry.pages) for entry in of_part)
    return f"{left_s:.0f} s are left, and it would take about {needed_s:.0f}" if needed_s > left_s else ""


def _files(named: tuple[str, ...]) -> list[str]:
    """Return the files of the pages; the doctor names those that cannot be read."""
    return [str(page) for page in pages_in(named) if not isinstance(page, BadPage)]


def write(night: NightState, out: Path) -> None:
    """Write what is known of a night, as page, summary and state."""
    out.mkdir(parents=True, exist_ok=True)
    write_views(night, out)
    night.write(out)


def _keep(night: NightState, found: Results, folder: Path) -> Path:
    """Add a night that has ended to the folder of all, and make the page over them anew; return the page."""
    add(folder, _record(night, found))
    nights, damaged = read(folder)
    page = html(nights, damaged)
    write_whole(folder / INDEX_NAME, page.encode("utf-8", "replace"))
    return folder / INDEX_NAME


def _record(night: NightState, found: Results) -> Night:
    config, facts = night.config, night.facts
    setting = f"{config.checkpoint}/{config.device}-{config.dtype}-{config.attention}"
    parts: list[Outcome] = [
        {"name": entry.name, "word": entry.word, "seconds": entry.seconds, "why": entry.why, "pages": len(entry.pages)}
        for entry in night.entries
    ]
    machine = facts.get("machine", {})
    return Night(
        started=night.started,
        ended=night.ended,
        commit=night.commit or "",
        word=night.verdict.partition(":")[0],
        verdict=night.verdict,
        machine=", ".join([str(machine.get("cpu", "unknown")), *facts.get("gpus", ())]),
        parts=parts,
        **{**about({entry.name: result for entry, result in found}), "subject": config.subject} | {"setting": setting},
    )
