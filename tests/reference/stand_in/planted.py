"""Faults on request in the stand-in, and noise that must be none: ``planted.json`` beside this file names one.

``{"fault": "kill", "at": "token", "turn": 3, "once": true}`` kills the worker as it chooses the third token of a run,
and leaves the one started in its place alone; with ``"run": 2`` it is the worker's second run, and no other.
``planted.log`` gets the process id of each worker that was struck.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

PLAN = Path(__file__).with_name("planted.json")
LOG = Path(__file__).with_name("planted.log")

_turns: Counter[str] = Counter()


def at(place: str) -> None:
    """Strike, if this is the place and the turn."""
    if place == "infer":
        _turns["token"] = 0
    _turns[place] += 1
    plan = json.loads(PLAN.read_text()) if PLAN.exists() else {}
    wanted = plan.get("at"), plan.get("turn", 1), plan.get("run", _turns["infer"])
    if wanted != (place, _turns[place], _turns["infer"]) or (plan.get("once") and LOG.exists()):
        return
    with LOG.open("a") as log:
        log.write(f"{os.getpid()}\n")
    FAULTS[plan["fault"]]()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hang() -> None:
    while True:
        time.sleep(60)


def _write_everywhere(content: bytes) -> None:
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, content)
        except OSError:
            continue


def _out_of_memory(kind: type[Exception]) -> None:
    raise kind("tried to allocate 20.00 GiB")


def _import_what_is_not_there() -> None:
    importlib.import_module("a_package_that_is_not_there")


def _garbage() -> None:
    _write_everywhere(b"\x1b[2KLoading model... 97%\n" + b"x" * 500)
    _hang()


def _ask_for_consent() -> None:
    assert not sys.stdin.read(), "it read what was meant for the worker"


def _chatter() -> None:
    for _ in range(2000):
        os.write(1, b'{"type": "Response", "id": 1}\n')
        sys.stdout.write("\N{CYRILLIC CAPITAL LETTER EN} 文 100%\r")
    subprocess.run(["echo", "a child prints as well"], check=True)


FAULTS: dict[str, Callable[[], None]] = {
    "kill": _kill,
    "exit": lambda: sys.exit(3),
    "abort": os.abort,
    "memory": lambda: _out_of_memory(MemoryError),
    "cuda memory": lambda: _out_of_memory(torch.OutOfMemoryError),
    "import error": _import_what_is_not_there,
    "hang": _hang,
    "garbage": _garbage,
    "ask for consent": _ask_for_consent,
    "chatter": _chatter,
}
