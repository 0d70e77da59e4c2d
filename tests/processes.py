"""Running commands, and waiting for other processes."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def finished(*command: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a command, and return its status and its output as text."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **how)


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or a zombie."""
    if Path("/proc/self/stat").exists():
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return not state.strip() or state.startswith("Z")


def await_ended(*pids: int) -> None:
    """Wait until processes have ended."""
    await_(lambda: all(map(has_ended, pids)))


def await_(condition: Callable[[], bool], within_s: float = 600) -> None:
    """Wait until a condition holds, for long enough even on a busy machine."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
