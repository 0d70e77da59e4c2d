"""``dsocr bench``: time two sides alternately. The exit status is 0 if B is not slower."""

import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import write_whole
from pytest_dsocr.base.process import interrupted_by_sigterm
from pytest_dsocr.base.progress import progress_bar
from pytest_dsocr.base.words import entry, plain
from pytest_dsocr.cli.arguments import add, add_model, add_reading, case_of, setup_of
from pytest_dsocr.pages.page_list import page_named, shipped
from pytest_dsocr.plugin.option_values import max_slowdown as read_share
from pytest_dsocr.plugin.xfails import read_ledger
from pytest_dsocr.records.config import START_LIMIT_S
from pytest_dsocr.report.bench import as_json, bencher, markdown
from pytest_dsocr.report.ci import append_markdown
from pytest_dsocr.timing.bench import BenchStatus, compare, lines_of
from pytest_dsocr.timing.identity import PageSetting
from pytest_dsocr.timing.limits import LOOKS, TOKENS, Watcher
from pytest_dsocr.timing.rounds import QUANTITIES
from pytest_dsocr.timing.turns import LABELS, Task


def add_run(command: ArgumentParser) -> None:
    """Add the arguments of the command."""
    for side in ("a", "b"):
        what = "a commit, env:FOLDER, subject:NAME, or ."
        command.add_argument(side, metavar=side.upper(), help=what)
    add(command, "--subject", "implementation of a side that does not name one", "engine", metavar="NAME")
    add(command, "--page", "an image, or the name of a shipped page (default: one of these)", type=Path, metavar="PAGE")
    add(command, "--max-new-tokens", "stop after this many tokens", TOKENS, type=int, metavar="TOKENS")
    add(
        command,
        "--max-slowdown",
        "how much slower a stage may be, such as decode=0.05; may be given several times",
        action="append",
        metavar="STAGE=SHARE",
    )
    alone = "judge this quantity alone; may be given several times"
    add(command, "--stage", alone, action="append", choices=QUANTITIES, metavar="STAGE")
    known = "accepted slow-downs, as for --dsocr-xfails: test_is_no_slower[STAGE]  # until DATE: reason"
    add(command, "--xfails", known, type=Path, metavar="FILE")
    add(command, "--max-rounds", "most pairs of rounds", LOOKS[-1], type=int, metavar="PAIRS")
    add(
        command,
        "--seconds",
        "judge after this many seconds without loading, but not before a reading, a warm-up and a pair",
        type=float,
        metavar="SECONDS",
    )
    add(command, "--time-limit", "longest time without an answer", 600.0, type=float, metavar="SECONDS")
    add(command, "--start-limit", "the same limit while a side starts", START_LIMIT_S, type=float, metavar="SECONDS")
    add(command, "--out", "write the result and every round to this file", type=Path, metavar="FILE")
    add(command, "--markdown", "write a comment for a pull request to this file", type=Path, metavar="FILE")
    add(command, "--bencher", "write B's times in Bencher's format (BMF) to this file", type=Path, metavar="FILE")
    counts = "judge by what is counted, such as operators and waits, and by no clock"
    command.add_argument("--counts", action="store_true", help=counts)
    traces = "trace one page of each side, and say which line made the difference (default folder: dsocr-trace)"
    command.add_argument("--trace", nargs="?", const=Path("dsocr-trace"), type=Path, metavar="FOLDER", help=traces)
    add_model(command)
    add_reading(command)


def run(options: Namespace) -> Iterator[str]:
    """Measure, and yield what to print. ``options.status`` becomes that of the comparison."""
    options.status = BenchStatus.NOT_RUN
    task, ledger = _task(options), read_ledger(options.xfails) if options.xfails else None
    with interrupted_by_sigterm(), _watching() as (watch, tell):
        bench = compare((options.a, options.b), task, watch, tell, is_timed=not options.counts)
    bench = replace(bench, accepted=ledger.slow_downs() if ledger else {})
    options.status = bench.status  # before anything is printed, for the reader may close our output
    yield from lines_of(bench)
    for why in ledger.over() if ledger else ():
        yield from entry("noticed", why)
    for path, made in ((options.out, as_json), (options.markdown, markdown), (options.bencher, bencher)):
        if path:
            write_whole(path, made(bench))
            yield f"written         {path}"
    if why_not := append_markdown(markdown(bench)):
        yield from entry("noticed", why_not)
    yield f"verdict         {bench.verdict}"
    if bench.trace:
        yield from entry("trace", bench.trace.sentence)
        yield from bench.trace.lines
        yield f"written         {options.trace}: {', '.join(f'{label}.trace.json' for label in LABELS)}"


def _task(options: Namespace) -> Task:
    case = case_of(options, page_named(options.page or shipped("dev-3")[0]))
    reading = PageSetting(case.page.stem, case.page_sha256, case.prompt, case.preset.name, case.max_new_tokens)
    return Task(
        subject=options.subject,
        setup=vars(setup_of(options)),
        checkpoint_sha256=_sha256(options.checkpoint),
        page=case.page.resolve(),
        reading=reading,
        slower=dict(map(read_share, options.max_slowdown or ())),
        stages=tuple(dict.fromkeys(options.stage or ())),
        most_rounds=options.max_rounds,
        seconds=options.seconds or math.inf,
        limit_s=options.time_limit,
        start_limit_s=options.start_limit,
        traces=options.trace and options.trace.absolute(),
    )


def _sha256(checkpoint: str) -> str:
    """Return the hash of the weights, or an empty text if only the user's subject can read them."""
    from pytest_dsocr.engine.checkpoint import resolve

    try:
        return resolve(checkpoint).sha256
    except DsocrError:
        return ""


@contextmanager
def _watching() -> Iterator[tuple[Watcher, Callable[[str], None]]]:
    """Show a bar; yield what moves it, and what prints a line above it."""
    with progress_bar(unit="pair") as bar:

        def watch(what: str, done: int, total: int) -> None:
            bar.total, bar.n = total, done
            bar.set_description_str(what)

        def tell(text: str) -> None:
            bar.write(plain(f"dsocr: {text}"), file=sys.stderr)

        yield watch, tell
