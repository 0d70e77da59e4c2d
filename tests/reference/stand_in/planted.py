"""Faults on request in the stand-in: ``planted.json`` beside this file names one, and the page that it comes with.

``{"fault": "kill", "page": "tiny"}`` kills the worker where it reads ``tiny.png``; it leaves ``planted.log``.
"""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

PLAN = Path(__file__).with_name("planted.json")


def strike(page: str) -> None:
    """Do what is planted for this page, if anything is."""
    plan = json.loads(PLAN.read_text()) if PLAN.exists() else {}
    if plan.get("page") == Path(page).stem:
        PLAN.with_suffix(".log").touch()
        FAULTS[plan["fault"]]()


FAULTS: dict[str, Callable[[], object]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": lambda: time.sleep(600),
}
