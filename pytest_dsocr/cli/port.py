"""``dsocr port``: the next stage of a port to write or to fix, until all of it is right.

A first run looks at one small page up to its first token, a second one at the whole page, a third one at everything
that ``dsocr compare`` looks at. Each takes place only after the one before it. The subject has a process of its own
(``--isolate``). Nothing that a port could change from outside counts: options of limits, variables, ini files,
conftests, and plugins of other packages.
"""

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from msgspec import to_builtins

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.process import IDLE_WAITS
from pytest_dsocr.base.words import count, entry, in_shell
from pytest_dsocr.cli.compare import MEMORY_KEPT, plugin, status_of
from pytest_dsocr.models.spec import DECODE
from pytest_dsocr.plugin.options import OPTIONS, SPREAD
from pytest_dsocr.report.document import RunJson, finished
from pytest_dsocr.report.file import (
    EXIT_STATUS,
    JSON_NAME,
    ChangedError,
    Ending,
    RunIdentity,
    mark_ended,
    mark_running,
    read_result,
)
from pytest_dsocr.report.port import PortWork, lines, next_work
from pytest_dsocr.report.words import ON_REQUEST, SAFE_PATH, suites, suites_folder
from pytest_dsocr.subjects.loading import ADAPTERS, BY_ENGINE, GROUP

GIVEN = (
    *("subject", "checkpoint", "model", "device", "dtype", "attention", "reference", "pages", "presets", "explain"),
    *("subject_time_limit", "start_limit", "time_limit"),
)
"""Options of a run that ``port`` takes. The others are limits, or say what may be left out."""
REFERENCES = ("recorded", "engine")
PAGE = "receipt_086"
"""The shipped page with the fewest crops that show an exchange of columns and rows."""
FIRST = "first-token"
"""Folder of the first run. Steps and texts are looked at in the second one, as a text of one token tells little."""
OUT, LOG, STATUS_OF_WORK = Path("dsocr-port"), "pytest.txt", 1
LAST_LINES, MOST_NOTES = 12, 8
OF_PYTEST = ("PYTEST_", "DSOCR_")
ALONE = ("-psyrupy", "-pno:cacheprovider", f"-c{os.devnull}")
"""Arguments of pytest with which it reads no ini file, and loads the plugins alone that the suites need."""


def add_run(command: ArgumentParser) -> None:
    """Add the options of a run that change no limit, the folder, and the form of the output."""
    command.usage = "dsocr port --subject=SUBJECT [options]"
    for option in OPTIONS:
        if option.name in GIVEN:
            option.add_to(command)
    command.add_argument("--out", type=Path, default=OUT, help=f"folder for results and the receipt (default: {OUT})")
    command.add_argument("--json", action="store_true", help="print the next stage as JSON")


def run(options: Namespace) -> Iterator[str]:
    """Yield the next stage that is missing or wrong, or the end. ``options.status`` is 0 only at the end."""
    _check(options)
    again = in_shell(["dsocr", "port", *_typed(options)])
    options.named, result = [], None
    for name, how in _runs(options).items():
        result = _result(options.out / name, how)
        is_first = name == FIRST
        if work := _work_of(result, options, DECODE if is_first else ""):
            options.status = EXIT_STATUS[Ending.INFRASTRUCTURE] if work.state == "machine" else STATUS_OF_WORK
            log = str(options.out / name / LOG)
            yield from [json.dumps(to_builtins(work))] if options.json else lines(work, log, again)
            return
        if not (result.passes or is_first):
            options.status = EXIT_STATUS[result.ended_as] or STATUS_OF_WORK
            raise DsocrError(f"nothing is wrong, and the run does not pass: {result.verdict}; see {options.out / name}")
    assert result
    yield from _ended(result, options)


def _check(options: Namespace) -> None:
    """Raise ``DsocrError`` if something would change what counts."""
    if refused := sorted(one.env for one in OPTIONS if one.name not in GIVEN and [*one.in_environment()]):
        raise DsocrError(f"{refused[0]} is set, and dsocr port takes no such option; unset it")
    if not (subject := [*getattr(options, "subject", ())][-1:]):
        raise DsocrError("no subject is named; give --subject=package.module:factory, or --subject='dump:COMMAND'")
    kind, colon, _ = subject[0].partition(":")
    if kind + colon not in ADAPTERS and (not colon or [*entry_points(group=GROUP, name=kind)]):
        raise DsocrError(f"{subject[0]} is no port; give package.module:factory, or one of {', '.join(ADAPTERS)}")
    if (reference := [*getattr(options, "reference", REFERENCES)][-1]) not in REFERENCES:
        raise DsocrError(f"dsocr port compares with {' or '.join(REFERENCES)}, not with {reference}; leave it out")


def _typed(options: Namespace) -> Iterator[str]:
    """Yield the options as they were typed, with their short names."""
    yield from (word.replace("--dsocr-", "--", 1) for word in _words(options))
    if options.out != OUT:
        yield f"--out={options.out}"


def _words(options: Namespace) -> list[str]:
    """Return the options as arguments of pytest."""
    return [word for one in OPTIONS if one.name in GIVEN for word in one.words(options)]


def _runs(options: Namespace) -> Mapping[str, Sequence[str]]:
    """Return pytest's arguments of each run, by the name of its folder."""
    case = str(suites_folder() / "parity" / "test_case.py")
    if pages := getattr(options, "pages", None):
        from pytest_dsocr.pages.named import first_pages

        first = str(first_pages(pages)[0])
    else:
        first = PAGE
    words = _words(options)
    one_page = [case, *(word for word in words if not word.startswith("--dsocr-pages=")), f"--dsocr-pages={first}"]
    spread = [SPREAD, "-pxdist"] if find_spec("xdist") else []
    everything = [*suites(ON_REQUEST), *words, "--dsocr-allow-missing=snapshot", *spread]
    return {FIRST: [*one_page, "--dsocr-max-new-tokens=1"], "page": one_page, "all": everything}


def _result(out: Path, how: Sequence[str]) -> RunJson:
    """Run pytest and return its result; raise ``DsocrError`` with the end of its output if it left none."""
    words = [*how, f"-p{plugin()}", *ALONE, f"--rootdir={suites_folder()}", f"--confcutdir={suites_folder()}"]
    words += ["--dsocr-isolate", f"--dsocr-out={out}"]
    identity = RunIdentity.now(in_shell(["pytest", *words]))
    mark_running(out, identity)
    mine = {name: value for name, value in os.environ.items() if not name.startswith(OF_PYTEST)}
    environment = {**MEMORY_KEPT, **IDLE_WAITS, **mine, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with (out / LOG).open("wb") as log:
        command = [sys.executable, SAFE_PATH, "-m", "pytest", *words]
        _, digest = status_of(command, identity.id, environment, log)
    try:
        return finished(read_result(out, identity.id, digest=digest), out / JSON_NAME)
    except ChangedError as changed:
        mark_ended(out, identity, str(changed), Ending.CHANGED, "changed")
        raise
    except DsocrError as error:
        last = (out / LOG).read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        raise DsocrError("\n".join([str(error), *last])) from error


def _work_of(result: RunJson, options: Namespace, before: str) -> PortWork | None:
    from pytest_dsocr.adapters.dump_check import shapes  # brings torch
    from pytest_dsocr.engine.places import architecture_of

    checkpoint = result.run.checkpoint if result.run else [*getattr(options, "checkpoint", ["mini"])][-1]
    arch = architecture_of(checkpoint)
    preset = [*(result.run.presets if result.run else ()), arch.family.default_preset][0]
    work = next_work(result, arch.family, shapes(arch, arch.family.preset(preset)), before)
    notes = [note for note in result.notes if BY_ENGINE in note]
    if work is None and notes:
        right = [stage.name for stage in arch.family.stages]
        return PortWork(stage="all stages", state="engine", right=right, found=notes, why=[f"check: {REPLACE}"])
    return work


REPLACE = "code of the port that imports pytest_dsocr.engine or subjects.engine, and a class without read"


def _ended(result: RunJson, options: Namespace) -> Iterator[str]:
    """Write the receipt of a port that is done, and yield its verdict."""
    from pytest_dsocr.receipt.receipt import RECEIPT_NAME, write_receipt

    out, made = options.out / "all", f"{result.comparisons} comparisons in {count(len(result.cases), 'case')}"
    receipt = write_receipt(out)
    if options.json:
        places = {"result": str(out / JSON_NAME), "receipt": str(out / RECEIPT_NAME)}
        yield json.dumps({"stage": None, "verdict": result.verdict, **places})
        return
    yield f"{'done':<16}every stage is offered, and right"
    yield from entry("verdict", f"{result.verdict}; {made}")
    yield from chain.from_iterable(entry("noticed", note, 2) for note in result.notes[:MOST_NOTES])
    yield f"{'result':<16}{out / JSON_NAME}"
    yield f"{'receipt':<16}{out / RECEIPT_NAME}, {receipt.sha256}"
