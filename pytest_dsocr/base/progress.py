"""Progress: a bar on a terminal; off one a line now and then, at least every 30 s."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from pytest_dsocr.base.words import plain

if TYPE_CHECKING:
    from tqdm import tqdm

EVERY_S = 30.0


def report(
    line: Callable[[float], str],
    write: Callable[[str], object],
    is_over: Callable[[float], bool],
    first_s: float = EVERY_S,
    clock: Callable[[], float] = monotonic,
) -> None:
    """Write a line after ``first_s`` seconds, and then every 30 s.

    Args:
        line: makes the line from the seconds that have elapsed.
        write: takes it.
        is_over: waits for some seconds; returns at once, and true, where the work is done.
        first_s: when the first line is due.
        clock: the time in seconds.
    """
    started_s, wait_s = clock(), first_s
    while not is_over(wait_s):
        write(line(clock() - started_s))
        wait_s = EVERY_S


@contextmanager
def reported(line: Callable[[float], str], write: Callable[[str], object], first_s: float = EVERY_S) -> Iterator[None]:
    """Report, in a thread, as long as the context lasts; see :func:`report`."""
    is_over = Event()
    thread = Thread(target=report, args=(line, write, is_over.wait, first_s), name="dsocr-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def progress_bar(**options: Any) -> Iterator[tqdm[Any]]:
    """Show a bar on stderr that goes when the work is done; where stderr is no terminal, its text every 30 s."""
    from tqdm import tqdm

    if sys.stderr.isatty():
        with tqdm(leave=False, **options) as bar:
            yield bar
        return

    def line(_: float) -> str:
        return plain(f"dsocr: {' '.join(str(bar).split())}")

    text = "{desc} {n_fmt}/{total_fmt} {unit}, {elapsed}{postfix}"
    with (
        Path(os.devnull).open("w") as nowhere,
        tqdm(file=nowhere, bar_format=text, **options) as bar,
        reported(line, lambda text: print(text, file=sys.stderr, flush=True)),  # noqa: T201 - for the user
    ):
        yield bar
