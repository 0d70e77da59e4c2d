"""``dsocr diff``: what became wrong, right, slower or faster between two results, and what is not compared any more."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.sealed import write_whole
from pytest_dsocr.report.difference import Status, difference
from pytest_dsocr.report.difference_told import lines, markdown
from pytest_dsocr.report.file import read_result


def run(options: Namespace) -> Iterator[str]:
    """Yield what differs. ``options.status`` becomes that of the difference; see :class:`Status`.

    Raises:
        DsocrError: where a result cannot be read, is unfinished, or the Markdown cannot be written.
    """
    options.status = Status.NOT_COMPARABLE
    old, new = read_result(options.old), read_result(options.new)
    found = difference(old, new)
    if options.markdown:
        try:
            write_whole(options.markdown, markdown(found, old, new).encode("utf-8", "replace"))
        except DsocrError:
            options.status = 0  # a bad command line
            raise
    options.status = found.status
    yield from lines(found, old, new)
