"""Every check, one after the other; one that breaks down is a finding itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pytest_dsocr.doctor import inputs, machine
from pytest_dsocr.doctor.finding import Finding, Level, Wanted
from pytest_dsocr.foundation.errors import DsocrError

CHECKS: dict[str, Callable[[Wanted], Iterator[Finding]]] = {
    "python": machine.python,
    "torch": machine.torch,
    "attention": machine.attention,
    "gpu": machine.gpus,
    "weights": inputs.weights,
    "pages": inputs.pages,
    "vendor": inputs.vendor,
    "vendor's env": inputs.environment,
    "recordings": inputs.recordings,
    "pillow": inputs.pillow,
    "baselines": inputs.baselines,
    "disk": machine.disk,
}


def examine(wanted: Wanted) -> Iterator[Finding]:
    """Yield what each check finds."""
    for name, check in CHECKS.items():
        try:
            yield from check(wanted)
        except DsocrError as error:
            yield Finding(name, Level.FAULT, str(error))
        except Exception as error:  # a broken machine breaks in ways that nobody has thought of
            yield Finding(name, Level.FAULT, f"the check broke down: {type(error).__name__}: {error}")
