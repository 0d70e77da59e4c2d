"""Faults on request in the stand-in: ``planted.json`` beside this file names one.

``{"fault": "kill", "at": "token", "run": 2}`` kills the worker as it chooses the first token of its second run, and of
no other. ``planted.log`` gets the process id of each worker that was struck.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

PLAN = Path(__file__).with_name("planted.json")
LOG = Path(__file__).with_name("planted.log")

_turns: Counter[str] = Counter()


def at(place: str) -> None:
    """Strike, if this is the place and the turn."""
    if place == "infer":
        _turns["token"] = 0
    _turns[place] += 1
    plan = json.loads(PLAN.read_text()) if PLAN.exists() else {}
    if (plan.get("at"), 1, plan.get("run", _turns["infer"])) != (place, _turns[place], _turns["infer"]):
        return
    with LOG.open("a") as log:
        log.write(f"{os.getpid()}\n")
    FAULTS[plan["fault"]]()


def _hang() -> None:
    while True:
        time.sleep(60)


def _out_of_memory() -> None:
    raise MemoryError("tried to allocate 20.00 GiB")


FAULTS: dict[str, Callable[[], None]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "memory": _out_of_memory,
    "hang": _hang,
}
