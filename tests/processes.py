"""Whether processes have ended, and waiting for what happens in others."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or is only waiting for somebody to take note that it is."""
    if Path("/proc/self/stat").exists():
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return not state.strip() or state.startswith("Z")


def await_ended(*pids: int) -> None:
    """Wait until processes have ended: one that was signalled ends when the machine gets to it."""
    await_(lambda: all(map(has_ended, pids)))


def await_(condition: Callable[[], bool], within_s: float = 600) -> None:
    """Wait until something has happened, on a machine that may be busy with much else."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
