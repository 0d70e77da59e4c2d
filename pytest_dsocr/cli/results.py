"""``dsocr diff``, ``history``, ``scoreboard`` and ``receipt``: compare results, show them over time, certify one."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import write_whole
from pytest_dsocr.base.reading import Format
from pytest_dsocr.base.words import entry
from pytest_dsocr.cli.compare import DEFAULT_OUT
from pytest_dsocr.history import page, record
from pytest_dsocr.history import scoreboard as board
from pytest_dsocr.history.bench import night_of_bench
from pytest_dsocr.history.scoreboard_page import html as board_page
from pytest_dsocr.report.difference import DiffStatus, difference
from pytest_dsocr.report.difference_lines import lines, markdown
from pytest_dsocr.report.document import finished
from pytest_dsocr.report.file import WRONG, read_result

MARKDOWN = Format(str, "name another --into")


def add_diff(command: ArgumentParser) -> None:
    """Add the two results and the file for Markdown."""
    command.add_argument("old", type=Path, metavar="OLD", help="a dsocr.json, or its folder")
    command.add_argument("new", type=Path, metavar="NEW", help="the dsocr.json of a later run, or its folder")
    command.add_argument("--markdown", type=Path, metavar="FILE", help="also write this Markdown file")


def diff(options: Namespace) -> Iterator[str]:
    """Yield the differences. They determine ``options.status``; see :class:`DiffStatus`."""
    options.status = DiffStatus.NOT_COMPARABLE
    old, new = (finished(read_result(place), place) for place in (options.old, options.new))
    found = difference(old, new)
    shown, page = [*lines(found, old, new)], markdown(found, old, new)
    options.status = 0  # of a file that cannot be written
    if options.markdown:
        write_whole(options.markdown, page.encode("utf-8", "replace"))
    options.status = found.status
    yield from shown


def add_history(command: ArgumentParser) -> None:
    """Add the folder, the results to add, and the file for the page."""
    command.add_argument("folder", type=Path, metavar="FOLDER", help="a folder of nights")
    add = "add the result in this folder, or this dsocr.json or file of bench --out, first; may be given several times"
    command.add_argument("--add", type=Path, action="append", metavar="RESULT", help=add)
    command.add_argument("--html", type=Path, metavar="FILE", help="also write the history to this file, as a page")


def history(options: Namespace) -> Iterator[str]:
    """Yield a history as text, and write the page to ``--html``."""
    for night in [*_nights_of(options.add or ())]:  # nothing is added where one cannot be read
        yield f"{'added':<16}{record.add(options.folder, night)}"
    nights, damaged = record.read(options.folder)
    yield from page.lines(nights, damaged)
    if options.html:
        write_whole(options.html, page.html(nights, damaged).encode("utf-8", "replace"))
        yield f"{'written':<16}{options.html}"
    if not nights:
        raise DsocrError(f"{options.folder} holds no night that can be read; name a folder of them, or --add a result")


def _nights_of(named: Sequence[Path]) -> Iterator[record.Night]:
    """Yield records for a history: of runs, grouped by commit, and of files from ``dsocr bench --out``."""
    runs = []
    for path in named:
        if path.is_file():
            with suppress(DsocrError):
                yield night_of_bench(path)
                continue
        folder = path.parent if path.suffix == ".json" else path
        runs.append((folder.absolute().name, read_result(path, unfinished=True)))
    yield from record.of_runs(runs)


def add_scoreboard(command: ArgumentParser) -> None:
    """Add the folder, the run to keep, and the file for the tables."""
    command.add_argument("folder", type=Path, metavar="FOLDER", help="a folder with one file for each version")
    kept = "keep the result in this folder, or this dsocr.json, first"
    command.add_argument("--add", nargs=3, metavar=("RESULT", "NAME", "VERSION"), help=kept)
    title = "what --add calls it (default: as NAME's other versions in FOLDER, or NAME)"
    command.add_argument("--title", metavar="TITLE", help=title)
    copied = "with --add: the implementation that a stage was copied from, such as grid=vllm; several are allowed"
    command.add_argument("--copied", action="append", default=[], metavar="STAGE=NAME", help=copied)
    command.add_argument("--into", type=Path, metavar="FILE", help="also put the tables into this Markdown page")
    command.add_argument("--html", type=Path, metavar="FILE", help="also write the scoreboard to this file, as a page")


def scoreboard(options: Namespace) -> Iterator[str]:
    """Yield the tables as Markdown. Raise ``DsocrError`` if a file cannot be used or a run has no row."""
    if options.add:
        result, name, version = options.add
        before = board.read(options.folder) if options.folder.is_dir() else []
        title = options.title or next((kept.title for kept in reversed(before) if kept.name == name), name)
        made = board.ScoreboardEntry.of(read_result(Path(result)), name, title, version)
        board.keep(options.folder, replace(made, copied_from=board.copied_from(options.copied)), Path(result))
    kept = board.read(options.folder)
    tables = board.tables(kept)
    if options.html:
        shown = board_page(kept, options.folder, options.html)
        write_whole(options.html, shown.encode("utf-8", "replace"), shared=True)
    if options.into:
        page = board.put_into(MARKDOWN.read_text(options.into), tables)
        write_whole(options.into, page, shared=True)
    yield from "\n".join(tables).splitlines()


def add_receipt(command: ArgumentParser) -> None:
    """Add the folder of the result, and the receipt to verify."""
    command.usage = "dsocr receipt [FOLDER] | dsocr receipt --verify FILE [--rerun]"
    what = f"folder of a finished run; the receipt is written into it (default: {DEFAULT_OUT})"
    command.add_argument("folder", nargs="?", type=Path, default=Path(DEFAULT_OUT), metavar="FOLDER", help=what)
    command.add_argument("--verify", type=Path, metavar="FILE", help="check a receipt.json instead of writing one")
    rerun = "also run the receipt's command, and compare verdict, counts and causes; it runs the subject's code"
    schemas = "write the JSON schemas of dsocr.json and of the receipt into this folder instead"
    command.add_argument("--schemas", type=Path, metavar="FOLDER", help=schemas)
    command.add_argument("--rerun", action="store_true", help=rerun)


def receipt(options: Namespace) -> Iterator[str]:
    """Yield the written files, or the findings about a receipt. ``options.status`` is 1 if one contradicts it."""
    if options.schemas:
        from pytest_dsocr.receipt.schemas import schemas

        for name, text in schemas().items():
            yield from entry("written", str(write_whole(options.schemas / name, text, shared=True)))
        return
    if options.verify:
        from pytest_dsocr.receipt.verify import CheckMark, verify

        options.status = 0
        for mark, what, found in verify(options.verify, rerun=options.rerun):
            options.status = WRONG if mark is CheckMark.NO else options.status
            yield from entry(f"{mark:<4} {what}", found)
        return
    from pytest_dsocr.receipt.receipt import MARKDOWN_NAME, RECEIPT_NAME, write_receipt  # brings torch

    made = write_receipt(options.folder)
    yield from entry("verdict", made.verdict)
    yield from entry("written", ", ".join(str(options.folder / name) for name in (RECEIPT_NAME, MARKDOWN_NAME)))
    yield from entry("sha256", made.sha256)
