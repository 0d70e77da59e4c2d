"""``dsocr load``: measure how fast a server reads pages. The exit status is 1 after an error."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from time import perf_counter

from msgspec.structs import replace

from pytest_dsocr.adapters.completion import Completion
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import write_whole
from pytest_dsocr.base.process import commit_here
from pytest_dsocr.base.progress import progress_bar
from pytest_dsocr.base.words import count, entry
from pytest_dsocr.cli.arguments import add, add_model, add_reading, setup_of
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import SubjectFaultError
from pytest_dsocr.report.file import now
from pytest_dsocr.timing.identity import PageSetting, identity_of
from pytest_dsocr.timing.rounds import Measured, Round
from pytest_dsocr.timing.summary import ms

AT_ONCE = (1, 4, 16)
LEAST, EACH = 8, 3
"""Pages of a level: the least number, and the number for each concurrent request."""
HEAD = ("at once", "pages", "errors", "pages/s", "first text", "between texts", "page")
UNIT = ("", "", "", "", *("median, 99%",) * 3)
WIDTHS = (*map(len, HEAD[:4]), *(len("0.123 ms, 0.123 ms"),) * 3)


def add_run(command: ArgumentParser) -> None:
    """Add the server, the pages, and the levels."""
    command.add_argument("server", metavar="URL", help="address of the server: http://HOST:PORT/v1?model=NAME")
    add(command, "--pages", "images, or shipped pages", ["dev-3"], nargs="+", metavar="PAGE")
    levels = f"numbers of concurrent requests (default: {' '.join(map(str, AT_ONCE))})"
    command.add_argument("--at-once", help=levels, default=[AT_ONCE], nargs="+", type=numbers, metavar="N")
    add(command, "--max-new-tokens", "stop after this many tokens", 256, type=int, metavar="TOKENS")
    add(command, "--time-limit", "seconds for one page", 120.0, type=float, metavar="SECONDS")
    add(command, "--out", "write every time to this file, for dsocr history --add", type=Path, metavar="FILE")
    add_model(command)
    add_reading(command)


def numbers(text: str) -> list[int]:
    """Read numbers separated by commas."""
    return [*map(int, text.split(","))]


def run(options: Namespace) -> Iterator[str]:
    """Send the requests, and yield each row of a table as it ends. ``options.status`` is 1 if a page was not read."""
    from pytest_dsocr.adapters.server import ServerSubject, options_of
    from pytest_dsocr.pages.named import make_cases

    levels = [*chain(*options.at_once)]
    if min(levels) < 1:
        raise DsocrError("--at-once=0 sends no request; give 1 or more")
    family, most = family_named(options.checkpoint), options.max_new_tokens
    named = make_cases(options.pages, [options.prompt], [options.preset], most, family=family)
    if named.bad:
        raise DsocrError(named.bad[0].why)
    setup, asked = setup_of(options), options_of(options.server)
    server = ServerSubject(replace(asked, time_limit=min(asked.time_limit, options.time_limit)), setup)
    server.greet()
    yield from map(_row, (HEAD, UNIT))
    rounds, errors = list[Round](), list[str]()
    with progress_bar(unit="page") as bar:
        for at_once in levels:
            bar.set_description_str(f"{at_once} at once")
            number, started = max(LEAST, EACH * at_once), perf_counter()
            bar.total, bar.n = number, 0
            cases = islice(cycle(named.good), number)
            times, failed = _read(partial(server.ask, stream=True), cases, at_once, bar.update)
            pages, errors = len(times["page"]), [*errors, *failed]
            counts = (str(at_once), str(pages), str(len(failed)), f"{pages / (perf_counter() - started):.2f}")
            yield _row((*counts, *map(_median_and_most, times.values())))
            rounds += [Round({f"{name}/{at_once}": one}) for name, of in times.items() for one in of]
    options.status = int(bool(errors))
    yield from entry("error", errors[0]) if errors else ()
    if options.out:
        asked_of = PageSetting(
            " ".join(options.pages), "", named.good[0].prompt, options.preset, options.max_new_tokens
        )
        here = {"commit": commit_here() or "", "machine": {"cpu": f"the host of {options.server}", "cores": 0}}
        measured = Measured(identity_of(options.server, vars(setup), asked_of, **here), {}, tuple(rounds))
        head = {"started": now(), "verdict": f"{count(len(errors), 'error')} under load", "status": options.status}
        write_whole(options.out, json.dumps({**head, "b": asdict(measured), "judgements": []}) + "\n", shared=True)
        yield f"written         {options.out}"


def _read(
    ask: Callable[[Case], Completion], cases: Iterable[Case], at_once: int, on_done: Callable[[], object]
) -> tuple[dict[str, list[float]], list[str]]:
    """Read cases with ``at_once`` concurrent requests; return the times by kind in milliseconds, and the errors."""
    times: dict[str, list[float]] = {"first": [], "between": [], "page": []}
    errors: list[str] = []

    def read(case: Case) -> None:
        started = perf_counter()
        try:
            answer = ask(case)
            times["page"].append((perf_counter() - started) * 1e3)
            times["first"] += [] if answer.first_ms is None else [answer.first_ms]
            times["between"] += answer.between_ms
        except SubjectFaultError as error:
            errors.append(str(error))
        on_done()

    with ThreadPoolExecutor(at_once) as threads:
        list(threads.map(read, cases))
    return times, errors


def _row(cells: Sequence[str]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def _median_and_most(times_ms: list[float]) -> str:
    """Return the median and the 99th percentile."""
    own = sorted(times_ms)
    return f"{ms(own[len(own) // 2])}, {ms(own[len(own) * 99 // 100])}" if own else "none"
