"""The process of one side: it loads the subject, and measures on request."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

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


def answering(channel: Any) -> Callable[[Mapping[str, Any]], None]:
    """Return what answers a request over a channel, with a value or with what was raised."""
    worker = Worker()

    def answer(request: Mapping[str, Any]) -> None:
        try:
            value = getattr(worker, f"on_{request['do']}")(**request["how"])
        except Exception as error:
            trace = "".join(traceback.format_exception(error))[-TRACE_CHARACTERS:]
            channel.send("refusal", {"error": f"{type(error).__name__}: {error}", "trace": trace})
        else:
            channel.send("answer", value)

    return answer
