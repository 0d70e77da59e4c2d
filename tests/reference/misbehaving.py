"""A runtime for a worker; a case's prompt or its checkpoint selects how it misbehaves.

``exit 3`` ends the process; ``exit 3@FILE`` does so once, and then makes the file.
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import torch

from pytest_dsocr.records.case import Case
from pytest_dsocr.records.provenance import Provenance
from pytest_dsocr.reference.protocol import OnProgress
from tests.hardening.misdeeds import DEEDS, raising
from tests.reference.replay import MADE

RUNTIME = f"{__name__}:Misbehaving"
SLOW_S, SIGNS = 6.0, 200
"""Seconds of a slow request, and its signs of progress, many more than a limit needs."""
MORE: Mapping[str, Callable[[], object]] = {
    "memory": raising(MemoryError("tried to allocate 20.00 GiB")),
    "cuda memory": raising(torch.OutOfMemoryError("tried to allocate 20.00 GiB")),
    "import error": raising(ModuleNotFoundError("No module named 'a_package_that_is_not_there'")),
    "system exit": raising(SystemExit(3)),
    "complain": lambda: os.write(2, b"50%\r100%\r\xff \x1b[31mred\n"),
}


class Misbehaving:
    """A runtime that misbehaves; otherwise, its FLOPs are the environment variables."""

    provenance: Provenance = MADE

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress

    @classmethod
    def load(cls, checkpoint: str, *, on_progress: OnProgress, **_: Any) -> Self:
        do(checkpoint)
        return cls(on_progress)

    def flops(self, case: Case) -> Any:
        if case.prompt.startswith("slow"):
            for number in range(SIGNS):
                time.sleep(SLOW_S / SIGNS)
                self._on_progress("token", number, None)
        else:
            do(case.prompt)
        return 17 if case.prompt == "no mapping" else {**os.environ}

    def observe(self, case: Case, **_: Any) -> Any:
        do(case.prompt)


def do(message: str) -> None:
    """Do a deed, or nothing where it was to be done once."""
    deed, _, mark = message.partition("@")
    if mark and Path(mark).exists():
        return
    if mark:
        Path(mark).touch()
    known: dict[str, Callable[[], object]] = {**DEEDS, **MORE}
    if deed in known:
        known[deed]()
