"""``dsocr bench``: two sides measured in turn, and a machine's own false alarms. The status is 0 if B is not slower."""

from __future__ import annotations

import json
import math
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pytest_dsocr.cli.arguments import add, add_model, add_reading
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.foundation.process import interrupted_by_sigterm, progress_bar
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.perf import calibration, history
from pytest_dsocr.perf.bench import Bench, Status, Task, Watcher, compare, lines_of
from pytest_dsocr.perf.candidate import opened
from pytest_dsocr.perf.identity import PageSetting
from pytest_dsocr.perf.limits import ANY, LOOKS, TOKENS
from pytest_dsocr.reference.goldens import BASELINES, OWN, baseline_places, golden_folder


def add_run(command: ArgumentParser) -> None:
    """Add what is the command's alone."""
    command.usage = "dsocr bench A B [options], or dsocr bench --calibrate A"
    command.add_argument("sides", nargs="+", metavar="A B", help="a commit, FILE.whl, env:FOLDER, subject:NAME, or .")
    add(command, "--subject", "implementation of a side that names none", "session", metavar="NAME")
    add(command, "--page", "an image (default: a shipped page)", type=Path, metavar="FILE")
    add(command, "--max-new-tokens", "stop after this many tokens", TOKENS, type=int, metavar="TOKENS")
    add(
        command,
        "--slower",
        "how much slower a stage may be, such as decode=0.05; may be given several times",
        action="append",
        metavar="STAGE=SHARE",
    )
    add(command, "--rounds", "take at most so many pairs of rounds", LOOKS[-1], type=int, metavar="PAIRS")
    add(command, "--time-limit", "longest time without an answer", 600.0, type=float, metavar="SECONDS")
    add(command, "--out", "write the result and every round to this file", type=Path, metavar="FILE")
    where = "add a line for each side to this file, such as history.jsonl, which dsocr history shows"
    add(command, "--history", where, type=Path, metavar="FILE")
    add(
        command,
        "--planted",
        "really make a stage of B slower, to see it found; may be given several times",
        action="append",
        metavar="STAGE=SHARE",
    )
    counts = "judge by what is counted, such as operators and waits, and by no clock"
    command.add_argument("--counts", action="store_true", help=counts)
    command.add_argument(
        "--calibrate", action="store_true", help="measure A against itself: what this machine's verdicts are worth"
    )
    add(command, "--judgements", "how often --calibrate judges A against itself", 100, type=int, metavar="COUNT")
    add(command, "--pairs", "pairs of rounds that --calibrate draws them from", 240, type=int, metavar="PAIRS")
    add(command, "--processes", "pairs of processes that --calibrate spreads them over", 5, type=int, metavar="COUNT")
    add_model(command)
    add_reading(command)


def run(options: Namespace) -> Iterator[str]:
    """Measure, and yield what to print. ``options.status`` becomes that of the comparison.

    Raises:
        DsocrError: where a side cannot be run, or an option is bad.
    """
    options.status = Status.NOT_RUN
    wanted = 1 if options.calibrate else 2
    if len(options.sides) != wanted:
        raise DsocrError(
            f"{'--calibrate takes one side' if wanted == 1 else 'name two sides'}, not {len(options.sides)}"
        )
    task = _task(options)
    if options.out and not options.out.parent.is_dir():
        raise DsocrError(f"there is no folder {options.out.parent} for --out={options.out}; make it, or name another")
    with interrupted_by_sigterm():
        yield from _calibrated(options, task) if options.calibrate else _compared(options, task)


def _compared(options: Namespace, task: Task) -> Iterator[str]:
    with _watching("pair") as watch:
        bench = compare(options.sides, task, watch, is_timed=not options.counts)
    options.status = bench.status  # before anything is printed, for the reader may close our output
    yield from lines_of(bench)
    if quantities := [one.quantity for one in bench.judgements]:
        places = [OWN / BASELINES, *baseline_places(golden_folder())]
        yield from calibration.quoted(bench.b.identity["machine"], places, quantities)
    for path in _written(bench, options):
        yield f"written         {path}"
    yield f"verdict         {bench.verdict}"


def _calibrated(options: Namespace, task: Task) -> Iterator[str]:
    if not 0 < options.processes <= options.pairs or options.judgements < 1:
        raise DsocrError(
            f"--pairs={options.pairs} cannot be spread over --processes={options.processes} and judged "
            f"--judgements={options.judgements} times; give at least one of each, and a pair for each process"
        )
    with _watching("pair") as watch, opened(options.sides[0]) as candidate:
        found, measured = calibration.measure(
            candidate, task, options.judgements, options.pairs, options.processes, watch
        )
    yield from calibration.lines_of(found)
    yield f"written         {calibration.write(found, OWN / BASELINES)}"
    if options.out:
        sides = [dict(zip("ab", (one.to_json() for one in two), strict=True)) for two in measured]
        write_whole(options.out, json.dumps(sides).encode() + b"\n")
        yield f"written         {options.out}"
    options.status = Status.NOT_SLOWER


def _task(options: Namespace) -> Task:
    case = make_case(options.page or shipped("dev-3")[0], options.prompt, options.preset, options.max_new_tokens)
    reading = PageSetting(case.page.stem, case.page_sha256, case.prompt, case.preset.name, case.max_new_tokens)
    setup = {name: getattr(options, name) for name in ("checkpoint", "device", "dtype", "attention")}
    slower, planted = (_shares(flag, getattr(options, flag) or ()) for flag in ("slower", "planted"))
    return Task(
        subject=options.subject,
        setup=setup,
        checkpoint_sha256=_sha256(options.checkpoint),
        page=case.page.resolve(),
        reading=reading,
        slower=slower,
        most_rounds=options.rounds,
        planted=planted,
        limit_s=options.time_limit,
    )


def _sha256(checkpoint: str) -> str:
    """Return the hash of the weights; nothing of a checkpoint that only a subject of the user's own can read."""
    from pytest_dsocr.engine.checkpoint import resolve

    try:
        return resolve(checkpoint).sha256
    except DsocrError:
        return ""


def _shares(flag: str, given: Sequence[str]) -> dict[str, float]:
    found = {}
    for one in given:
        name, _, share = one.rpartition("=")
        name = name or ANY
        try:
            found[name] = float(share)
        except ValueError:
            found[name] = math.nan
        if not 0 < found[name] < math.inf or (flag, name) == ("planted", ANY):
            raise DsocrError(f"--{flag}={one} is no stage and share; give one such as decode=0.05 for 5 %")
    return found


def _written(bench: Bench, options: Namespace) -> Iterator[Path]:
    if options.history and not bench.b.identity["planted"]:
        lines = [history.Line.of(bench.a), history.Line.of(bench.b, bench.judgements)]
        history.append(options.history, [line for line in lines if line.quantities])
        yield options.history
    if options.out:
        write_whole(options.out, json.dumps(bench.to_json(), indent=1).encode() + b"\n")
        yield options.out


@contextmanager
def _watching(unit: str) -> Iterator[Watcher]:
    with progress_bar(unit=unit) as bar:

        def watch(what: str, done: int, total: int) -> None:
            bar.total, bar.n = total, done
            bar.set_description_str(what)

        yield watch
