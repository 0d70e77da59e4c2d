"""A job's process: its output in a file, its time limited, and none of its children left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

TIME_IS_OVER = "its time was over"


def run(
    command: Sequence[str], log: Path, variables: Mapping[str, str], limit_s: float, grace_s: float
) -> tuple[int, float, str]:
    """Run a command to its end, or to that of its time. It belongs to the group of this process, and dies with it.

    Returns:
        Its exit status as a shell gives it, the seconds it took, and why it was ended, if it was.
    """
    started_s = monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **variables}
        )
        why = ""
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status, why = _end(process, grace_s), TIME_IS_OVER
        except BaseException:
            _end(process, grace_s)
            raise
    return (status if status >= 0 else 128 - status), monotonic() - started_s, why


def _end(process: subprocess.Popen[bytes], grace_s: float) -> int:
    """Ask a process to end, which writes what it has; then kill it with all that it started."""
    started = [*_below(process.pid)]
    process.terminate()
    try:
        return process.wait(grace_s)
    except subprocess.TimeoutExpired:
        for pid in (*started, *_below(process.pid), process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return process.wait()


def _below(pid: int) -> Iterator[int]:
    """Yield the processes that one has started, and those that they have, where Linux lists them."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in path.read_text(encoding="ascii").split()]
        except OSError:
            continue
        for child in children:
            yield from (child, *_below(child))
