"""``dsocr new-adapter``: a commented file to begin an adapter of one's own with."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from pytest_dsocr.adapters.start import write_start
from pytest_dsocr.foundation.words import in_shell


def run(options: Namespace) -> Iterator[str]:
    """Write it, and say what to do with it.

    Raises:
        DsocrError: where it cannot be written.
    """
    subject = write_start(options.kind, options.file)
    yield f"written     {options.file}"
    yield "next        replace what it says to replace, then run, in the file's folder if it is Python:"
    yield f"            {in_shell(['pytest', '--pyargs', 'pytest_dsocr.suites', f'--dsocr-subject={subject}'])}"
