"""The process of one side: it loads the subject, and measures on request."""

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

TRACE_CHARACTERS = 6000


class Worker:
    """Requests to one side other than to its probe; values are those of JSON."""

    probe: Any = None

    def load(self, spec: str, setup: Mapping[str, str], reading: Mapping[str, Any], **how: Any) -> dict[str, Any]:
        """Load the subject; return the machine, the versions and the threads that it runs on."""
        import torch

        from pytest_dsocr.engine.places import family_named
        from pytest_dsocr.subjects.loading import load_subject
        from pytest_dsocr.subjects.protocol import Setup
        from pytest_dsocr.timing.probe.machine import machine, versions
        from pytest_dsocr.timing.probe.page import PageProbe

        subject, page = load_subject(spec, Setup(**setup)), Path(reading["path"])
        asked: dict[str, Any] = {name: reading[name] for name in ("prompt", "max_new_tokens")}
        preset = family_named(setup["checkpoint"]).preset(reading["preset"])
        self.probe = PageProbe(subject, page, **asked, preset=preset, device=setup["device"], **how)
        return {"machine": machine(setup["device"]), "versions": versions(), "threads": torch.get_num_threads()}

    def trace(self, file: str, trees: Sequence[str], packages: Sequence[str]) -> dict[str, Any]:
        """Trace the page once, write the trace to a file, and return the table; see ``tracing``."""
        from pytest_dsocr.timing.probe.lines import Own
        from pytest_dsocr.timing.probe.tracing import trace

        return trace(self.probe, Own(trees, packages), Path(file))

    def used(self, roots: Sequence[str]) -> list[str]:
        """Return the modules that were loaded from folders."""
        files = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()]}
        whole = {name: Path(file).resolve() for name, file in files.items() if file and Path(file).is_absolute()}
        return sorted(name for name, file in whole.items() if any(file.is_relative_to(root) for root in roots))


def answering(channel: Any) -> Callable[[Mapping[str, Any]], None]:
    """Return what answers a request, a method of the worker or of its probe, with a value or with what was raised."""
    worker = Worker()

    def answer(request: Mapping[str, Any]) -> None:
        try:
            asked = worker if hasattr(worker, request["do"]) else worker.probe
            value = getattr(asked, request["do"])(**request["how"])
        except Exception as error:
            trace = "".join(traceback.format_exception(error))[-TRACE_CHARACTERS:]
            channel.send("refusal", {"error": f"{type(error).__name__}: {error}", "trace": trace})
        else:
            channel.send("answer", value)

    return answer
