"""``dsocr load``: how many pages a second a server reads, and how long each waits. The status is 1 after an error."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pytest_dsocr.adapters import load as loading
from pytest_dsocr.cli.arguments import add, add_model, add_reading
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.foundation.process import commit_here, cores, progress_bar
from pytest_dsocr.foundation.words import aligned, count, entry
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.config import Setup
from pytest_dsocr.report.file import now

AT_ONCE = (1, 4, 16)
LEAST, EACH = 8, 3
"""Pages of a level: at least so many, and so many for each that is open at once."""


def add_run(command: ArgumentParser) -> None:
    """Add the server, the pages, and the levels."""
    command.add_argument("server", metavar="URL", help="as a subject is named: http://HOST:PORT/v1?model=NAME")
    add(command, "--pages", "images, or shipped pages", ["dev-3"], nargs="+", metavar="PAGE")
    levels = f"how many requests are open (default: {' '.join(map(str, AT_ONCE))})"
    command.add_argument("--at-once", help=levels, default=AT_ONCE, nargs="+", type=int, metavar="N")
    add(command, "--max-new-tokens", "stop after this many tokens", 256, type=int, metavar="TOKENS")
    add(command, "--time-limit", "seconds for one page", 120.0, type=float, metavar="SECONDS")
    add(command, "--out", "write every time to this file, for dsocr history --add", type=Path, metavar="FILE")
    add_model(command)
    add_reading(command)


def run(options: Namespace) -> Iterator[str]:
    """Ask, and yield a table; ``options.status`` becomes 1 where a page was not read.

    Raises:
        DsocrError: where it is no server, it cannot be asked, or a page cannot be had.
    """
    from pytest_dsocr.adapters.server import ServerSubject, options_of
    from pytest_dsocr.pages.named import make_cases

    if min(options.at_once) < 1:
        raise DsocrError("nothing is asked for at --at-once=0; give 1 or more")
    setup = Setup(options.checkpoint, options.device, options.dtype, options.attention)
    how = ([options.prompt], [options.preset], options.max_new_tokens)
    cases = make_cases(options.pages, *how, family=family_named(options.checkpoint)).good
    asked, found = options_of(options.server), list[loading.Loaded]()
    server = ServerSubject(replace(asked, time_limit=min(asked.time_limit, options.time_limit)), setup)
    server.greet()

    def ask(number: int) -> Any:
        return server.ask(cases[number % len(cases)], stream=True)

    with progress_bar(unit="page") as bar:
        for at_once in options.at_once:
            number = max(LEAST, EACH * at_once)
            bar.total, bar.n = number, 0
            bar.set_description_str(f"{at_once} at once")
            found.append(loading.load(ask, at_once, number, bar.update))
    yield from aligned([loading.HEAD, loading.UNIT, *(one.row for one in found)], ())
    errors = [error for one in found for error in one.errors]
    options.status = int(bool(errors))
    yield from entry("error", errors[0]) if errors else ()
    if options.out:
        write_whole(options.out, json.dumps(_kept(options, found, cases[0])) + "\n", shared=True)
        yield f"written         {options.out}"


def _kept(options: Namespace, found: Sequence[loading.Loaded], case: Case) -> dict[str, Any]:
    """Return what ``dsocr history`` takes: the times of each level as quantities of their own."""
    from pytest_dsocr.perf.identity import PageSetting, identity_of
    from pytest_dsocr.perf.rounds import Measured, Round

    setup = {name: getattr(options, name) for name in ("checkpoint", "dtype", "attention")}
    pages = PageSetting(" ".join(options.pages), "", case.prompt, case.preset.name, case.max_new_tokens)
    here = {"commit": commit_here() or "", "machine": {"cpu": f"the host of {options.server}", "cores": cores()}}
    rounds = tuple(
        Round({f"{name}/{level.at_once}": ms})
        for level in found
        for name, times_ms in level.times_ms.items()
        for ms in times_ms
    )
    errors = sum(len(level.errors) for level in found)
    head = {"started": now(), "verdict": f"{count(errors, 'error')} under load", "status": options.status}
    measured = Measured(identity_of(options.server, setup, pages, **here), {}, rounds)
    return {**head, "b": asdict(measured), "judgements": []}
