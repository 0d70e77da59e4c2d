"""``dsocr receipt``: write the receipt of a run, or verify one."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from pytest_dsocr.base.files import write_whole
from pytest_dsocr.base.words import entry
from pytest_dsocr.cli.compare import DEFAULT_OUT
from pytest_dsocr.receipt.receipt import MARKDOWN_NAME, RECEIPT_NAME, write_receipt
from pytest_dsocr.report.file import WRONG


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
    made = write_receipt(options.folder)
    yield from entry("verdict", made.verdict)
    yield from entry("written", ", ".join(str(options.folder / name) for name in (RECEIPT_NAME, MARKDOWN_NAME)))
    yield from entry("sha256", made.sha256)
