"""``dsocr history``: what was measured run by run, as text and as a page."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.sealed import write_whole
from pytest_dsocr.perf.charts import html, lines_of
from pytest_dsocr.perf.history import read


def run(options: Namespace) -> Iterator[str]:
    """Yield a history as text; write the page where ``--html`` says. The status is 1 where no line could be read.

    Raises:
        DsocrError: where there is no history, or the page cannot be written.
    """
    series, damaged = read(options.place)
    yield from lines_of(series, damaged)
    if options.html:
        write_whole(options.html, html(series, damaged).encode("utf-8", "replace"))
        yield f"written     {options.html}"
    if not series:
        raise DsocrError(f"{options.place} holds no line that can be read")
