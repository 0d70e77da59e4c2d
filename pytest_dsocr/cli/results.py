"""``dsocr diff``, ``merge`` and ``history``: results compared, merged, and shown night by night."""

import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import locked, made_anew, write_whole
from pytest_dsocr.foundation.process import interrupted_by_sigterm
from pytest_dsocr.foundation.reading import Format
from pytest_dsocr.foundation.words import count, in_shell
from pytest_dsocr.night import history as of_nights
from pytest_dsocr.night import record
from pytest_dsocr.night.run import run as run_night
from pytest_dsocr.night.state import MACHINE, read_config
from pytest_dsocr.report.ci import append_summary
from pytest_dsocr.report.difference import Status, difference, lines, markdown
from pytest_dsocr.report.file import EXIT_STATUS, Ending, RunIdentity, mark_running, read_result, write_json
from pytest_dsocr.report.merge import Part, merged, read_parts
from pytest_dsocr.report.views import write_index, write_summary

PICTURES = Format(bytes, "run that part again")


def add_diff(command: ArgumentParser) -> None:
    """Add the two results, and where the Markdown goes."""
    command.add_argument("old", type=Path, metavar="OLD", help="a dsocr.json, or the folder that it lies in")
    command.add_argument("new", type=Path, metavar="NEW", help="that of a later run")
    command.add_argument("--markdown", type=Path, metavar="FILE", help="write it as Markdown as well")


def diff(options: Namespace) -> Iterator[str]:
    """Yield what differs. ``options.status`` becomes that of the difference; see :class:`Status`.

    Raises:
        DsocrError: where a result cannot be read, is unfinished, or the Markdown cannot be written.
    """
    options.status = Status.NOT_COMPARABLE
    old, new = read_result(options.old), read_result(options.new)
    try:
        found = difference(old, new)
        shown, page = [*lines(found, old, new)], markdown(found, old, new)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        damage = f"{type(error).__name__}: {error}"
        raise DsocrError(f"{options.old} or {options.new} is damaged ({damage}); run the suites again") from error
    options.status = 0  # of a file that cannot be written
    if options.markdown:
        write_whole(options.markdown, page.encode("utf-8", "replace"))
    options.status = found.status
    yield from shown


def add_merge(command: ArgumentParser) -> None:
    """Add the folders to merge, and where to."""
    command.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="a shard's --out")
    command.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder for the merged result")
    command.add_argument(
        "--unfinished", action="store_true", help="merge what there is of runs that did not finish; it does not pass"
    )


def merge(options: Namespace) -> Iterator[str]:
    """Merge, write, and yield what was written and the verdict.

    Raises:
        DsocrError: where the results are not of one run, one did not finish, or nothing can be written.
    """
    if options.out.resolve() in {folder.resolve() for folder in options.folders}:
        raise DsocrError(f"{options.out} is one of the folders to merge; give another --out")
    parts = read_parts(options.folders, unfinished=options.unfinished)
    words = [*map(str, options.folders), f"--out={options.out}", *(["--unfinished"] if options.unfinished else [])]
    command = in_shell(["dsocr", "merge", *words])
    result = merged(parts, command)
    mark_running(options.out, RunIdentity.now(command))
    result["cases"] = [*_with_pictures(result["cases"], parts, options.out)]
    written = [write_index(result, options.out), write_summary(result, options.out), write_json(options.out, result)]
    if problem := append_summary(result):
        yield f"noticed     {problem}"
    options.status = EXIT_STATUS[Ending(result["ended_as"])]
    yield f"merged      {count(len(parts), 'run')}, {count(len(result['cases']), 'case')}"
    yield f"written     {', '.join(map(str, written[::-1]))}"
    yield f"verdict     {result['verdict']}"


def _with_pictures(cases: Sequence[dict[str, Any]], parts: Sequence[Part], out: Path) -> Iterator[dict[str, Any]]:
    """Yield the cases, their pictures and both sides' files copied; a case whose picture is lost has none."""
    for case in cases:
        name = case["picture"]
        found = [part.folder / name for part in parts if name and (part.folder / name).is_file()]
        if found:
            write_whole(out / name, PICTURES.read_bytes(found[0]), shared=True)
            if (sides := found[0].with_suffix("")).is_dir():
                _copy_folder(sides, made_anew((out / name).with_suffix("")))
        yield {**case, "picture": name if found else None}


def _copy_folder(source: Path, target: Path) -> None:
    try:
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    except OSError as error:
        raise DsocrError(f"{target} cannot be written ({error.strerror}); give another --out") from error


def add_history(command: ArgumentParser) -> None:
    """Add the folder, the results to add, and where the page goes."""
    command.add_argument("folder", type=Path, metavar="FOLDER", help="a folder of nights")
    add = "add the result in this folder, or this dsocr.json or file of bench --out, first; may be given several times"
    command.add_argument("--add", type=Path, action="append", metavar="RESULT", help=add)
    command.add_argument("--html", type=Path, metavar="FILE", help="draw it as a page as well")


def history(options: Namespace) -> Iterator[str]:
    """Yield a history as text; write the page where ``--html`` says.

    Raises:
        DsocrError: where no night can be read, a result to add cannot, or something cannot be written.
    """
    for result in options.add or ():
        yield f"{'added':<16}{record.add(options.folder, _night_of(result))}"
    nights, damaged = record.read(options.folder)
    yield from of_nights.lines(nights, damaged)
    if options.html:
        page = of_nights.html(nights, damaged)
        write_whole(options.html, page.encode("utf-8", "replace"))
        yield f"{'written':<16}{options.html}"
    if not nights:
        raise DsocrError(f"{options.folder} holds no night that can be read; name a folder of them, or --add a result")


def _night_of(result: Path) -> record.Night:
    """Return what a history keeps of a run, or of the file that ``dsocr bench --out`` wrote."""
    if result.is_file():
        with suppress(DsocrError):
            return record.of_bench(record.BENCHES.read(result))
    return record.of_run(read_result(result))


LOCK = ".night.lock"
PATHS = ("out", "history", "vendor", "vendor_env")


def add_nightly(command: ArgumentParser) -> None:
    """Add the configuration, and what counts before it."""
    command.add_argument("config", type=Path, metavar="CONFIG", help="configuration file in TOML")
    command.add_argument("--out", metavar="FOLDER", help="folder of results, in place of the configuration's")
    command.add_argument("--history", metavar="FOLDER", help="folder that each night adds a file to, likewise")
    command.add_argument("--vendor", metavar="FOLDER", help="folder with the vendor's files, likewise")
    command.add_argument("--vendor-env", metavar="FOLDER", help="the vendor's environment, likewise")
    command.add_argument("--commit", help="what names the code, where this is no git repository")
    command.add_argument("--minutes", type=float, help="time budget, in place of the configuration's")
    command.add_argument("--again", action="store_true", help="run every part, whatever is done already")


def nightly(options: Namespace) -> Iterator[str]:
    """Run a night; ``options.status`` becomes the worst status of its parts.

    Raises:
        DsocrError: on bad input; with the status 10, where the night itself cannot go on.
    """
    config = read_config(options.config, _overrides(options))
    with interrupted_by_sigterm(), locked(Path(config.out) / LOCK):
        options.status = MACHINE  # what ends the night itself is not the model's fault
        try:
            options.status = yield from run_night(config, again=options.again)
        except KeyboardInterrupt:
            yield "the same command goes on from here"
            raise


def _overrides(options: Namespace) -> dict[str, Any]:
    """Return what the command line says in place of the file; its paths are relative to the working directory."""
    values = {name: getattr(options, name) for name in (*PATHS, "minutes", "commit")}
    return {
        name: str(Path(value).absolute()) if value and name in PATHS else value
        for name, value in values.items()
        if value is not None
    }
