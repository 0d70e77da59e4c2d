"""Workers that are played: an interpreter that runs a scene of the test's writing where the worker should run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_dsocr.observation.provenance import Provenance
from pytest_dsocr.reference.live import LiveReference

CHECKPOINT = "synthetic:tiny"

MADE = Provenance(
    checkpoint=CHECKPOINT,
    checkpoint_sha256="c0" * 32,
    vendor_sha256={},
    device="cpu",
    dtype="float32",
    attention="eager",
    resampling="none",
    versions={},
    overrides=(),
    date="2026-01-02",
    command="",
)

PROPS = f"""
import json, os, signal, struct, subprocess, sys, time

FOLDER, HERE = sys.argv[-1], os.path.dirname(os.path.abspath(__file__))

def note(pid):
    with open(HERE + "/pids", "a") as log:
        log.write(str(pid) + "\\n")

def say(type, /, **fields):
    sys.stdout.write(json.dumps({{"type": type, **fields}}) + "\\n")
    sys.stdout.flush()

def hear():
    return json.loads(sys.stdin.readline())

def answer(id, result, tensors={{}}, provenance={MADE.to_json()!r}):
    say("Response", id=id, result=result, tensors=tensors, provenance=provenance)

def store(id, *values):
    data = struct.pack("<%df" % len(values), *values)
    header = {{"a": {{"dtype": "F32", "shape": [len(values)], "data_offsets": [0, len(data)]}}}}
    text = json.dumps(header).encode()
    path = FOLDER + "/%d.safetensors" % id
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    return path

def stall():
    with open(HERE + "/stalled", "w") as file:
        file.write(str(os.getpid()))

def hang():
    stall()
    time.sleep(6000)

note(os.getpid())
say("Hello", pid=os.getpid(), versions={{"python": "3.11.7"}})
"""

LOADED = """
answer(hear()["id"], {})
request = hear()
id = request["id"]
"""


class Clock:
    """Time that flies where a played worker has stalled: each look is ten seconds after the one before."""

    def __init__(self, folder: Path) -> None:
        self._stalled = folder / "stalled"
        self.flown_s = 0.0

    def monotonic(self) -> float:
        if self._stalled.exists() and not has_ended(int(self._stalled.read_text() or 0)):
            self.flown_s += 10
        return time.monotonic() + self.flown_s


@dataclass(frozen=True)
class Played:
    """A reference whose worker is played."""

    reference: LiveReference
    folder: Path

    @property
    def pids(self) -> list[int]:
        """Of every process that was started, in order."""
        log = self.folder / "pids"
        return [int(line) for line in log.read_text().split()] if log.exists() else []


@contextmanager
def played(folder: Path, scene: str, **options: Any) -> Iterator[Played]:
    """Give a reference whose worker plays ``scene``; at the end nothing of any may be left."""
    with LiveReference(folder, CHECKPOINT, python=interpreter(folder, scene), **options) as reference:
        one = Played(reference, folder)
        yield one
    await_ended(*one.pids)


def interpreter(folder: Path, scene: str) -> Path:
    """Write an interpreter that plays ``scene``, whatever it is told to run."""
    script, python = folder / "scene.py", folder / "python"
    script.write_text(PROPS + scene, encoding="utf-8")
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{script}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return python


def has_ended(pid: int) -> bool:
    """Tell whether a process is gone, or is only waiting for somebody to take note that it is."""
    if Path("/proc/self/stat").exists():
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return not state.strip() or state.startswith("Z")


def await_ended(*pids: int) -> None:
    """Wait until processes have ended: one that was told to does so when the machine gets to it."""
    await_(lambda: all(map(has_ended, pids)))


def await_(condition: Callable[[], bool], within_s: float = 600) -> None:
    """Wait until something has happened, on a machine that may be busy with much else."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
