"""The process of one side: it loads the subject, and measures as it is asked, a line of JSON for a line of JSON.

Answers go to a copy of stdout that nothing else knows of; what the subject prints to stdout goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

STDOUT, STDERR = 1, 2
TRACE_CHARACTERS = 6000


class Worker:
    """What is asked of one side, by the name of the request; values are those of JSON."""

    def __init__(self) -> None:
        self._subject: Any = None
        self._probe: Any = None
        self._reading: dict[str, Any] = {}
        self._page = Path()

    def on_load(self, spec: str, setup: Mapping[str, str], reading: Mapping[str, Any], **how: Any) -> dict[str, Any]:
        """Load the subject; return the machine, the versions and the threads that it runs on."""
        import torch

        from pytest_dsocr.engine.places import family_named
        from pytest_dsocr.perf.probe.machine import machine, versions
        from pytest_dsocr.perf.probe.page import PageProbe
        from pytest_dsocr.subjects.loading import load_subject
        from pytest_dsocr.subjects.protocol import Setup

        self._subject = load_subject(spec, Setup(**setup))
        asked = {name: reading[name] for name in ("prompt", "max_new_tokens")}
        self._reading = {**asked, "preset": family_named(setup["checkpoint"]).preset(reading["preset"])}
        self._page = Path(reading["path"])
        self._probe = PageProbe(self._subject, self._page, **self._reading, device=setup["device"], **how)
        return {"machine": machine(setup["device"]), "versions": versions(), "threads": torch.get_num_threads()}

    def on_used(self, roots: Sequence[str]) -> list[str]:
        """Return the modules that were loaded from folders."""
        files = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()]}
        return sorted(name for name, file in files.items() if file and _is_in(Path(file), roots))

    def on_read(self) -> str:
        """Return the text that the subject reads."""
        return str(self._subject.read(self._page, **self._reading)).strip()

    def on_warm_up(self) -> int:
        """Read until that takes no less time than before; return the rounds."""
        return int(self._probe.warm_up())

    def on_exact(self) -> dict[str, int]:
        """Return the quantities that noise does not touch."""
        return dict(self._probe.exact())

    def on_round(self) -> dict[str, Any]:
        """Read the page once; return the round."""
        return dict(self._probe.round())


def _is_in(file: Path, roots: Sequence[str]) -> bool:
    return file.is_absolute() and any(file.resolve().is_relative_to(root) for root in roots)


def serve(requests: TextIO, answers: TextIO, worker: Worker) -> None:
    """Answer each line until there is no more, or ``end`` is asked."""
    for line in requests:
        request = json.loads(line)
        if request["do"] == "end":
            return
        answer = _answer(getattr(worker, f"on_{request['do']}"), request["how"])
        print(json.dumps(answer), file=answers, flush=True)


def _answer(method: Callable[..., Any], how: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"value": method(**how)}
    except Exception as error:
        trace = "".join(traceback.format_exception(error))[-TRACE_CHARACTERS:]
        return {"error": f"{type(error).__name__}: {error}", "trace": trace}


def main() -> None:
    """Serve the process that started this one, and end with it."""
    answers = os.fdopen(os.dup(STDOUT), "w", encoding="utf-8")
    os.dup2(STDERR, STDOUT)
    serve(sys.stdin, answers, Worker())
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)  # a thread that the subject has left behind would be waited for
