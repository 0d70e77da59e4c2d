"""``dsocr diff``: what became wrong, right, slower or faster between two results, and what is not compared any more."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.report.difference import Status, difference, lines, markdown
from pytest_dsocr.report.file import read_result


def run(options: Namespace) -> Iterator[str]:
    """Yield what differs. ``options.status`` becomes that of the difference; see :class:`Status`.

    Raises:
        DsocrError: where a result cannot be read, is unfinished, or the Markdown cannot be written.
    """
    options.status = Status.NOT_COMPARABLE
    old, new = read_result(options.old), read_result(options.new)
    try:
        found = difference(old, new)
        told, page = [*lines(found, old, new)], markdown(found, old, new)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        damage = f"{type(error).__name__}: {error}"
        raise DsocrError(f"{options.old} or {options.new} is damaged ({damage}); run the suites again") from error
    options.status = 0  # of a file that cannot be written
    if options.markdown:
        write_whole(options.markdown, page.encode("utf-8", "replace"))
    options.status = found.status
    yield from told
