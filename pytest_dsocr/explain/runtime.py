"""The process that explains: a session without a mistake, which answers questions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import msgspec
import torch

from pytest_dsocr.engine.checkpoint import device_named, dtype_named, resolve
from pytest_dsocr.engine.model import weights_bytes
from pytest_dsocr.explain.question import Question
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.reference.protocol import unpack_case
from pytest_dsocr.reference.session import SessionRuntime

ALLOWANCE = 1.5
"""Of the weights' bytes: what is computed takes memory as well."""
MEMORY = Path("/proc/meminfo")
GIB = 2**30


class ExplainingRuntime(SessionRuntime):
    """A session as :class:`~pytest_dsocr.reference.session.SessionRuntime` loads it, which explains."""

    @classmethod
    def load(cls, checkpoint: str, *, device: str = "cpu", dtype: str = "float32", **options: Any) -> Self:
        """Load it as a session is loaded; raise ``DsocrError`` where there is no memory for one more."""
        check_memory(checkpoint, device, dtype)
        return super().load(checkpoint, device=device, dtype=dtype, **options)

    def explain(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a packed :class:`~pytest_dsocr.explain.question.Question`."""
        from pytest_dsocr.explain.explain import explain

        asked = msgspec.convert(question, Question, str_keys=True)
        with torch.no_grad():
            answer = explain(self.subject.session, unpack_case(asked.page.case), asked)
        packed: dict[str, Any] = msgspec.to_builtins(answer)
        return packed


def check_memory(checkpoint: str, device: str, dtype: str) -> None:
    """Raise ``DsocrError`` where the session would take more than is free on the device, or on a CPU of the host."""
    needed = ALLOWANCE * weights_bytes(resolve(checkpoint).architecture, dtype_named(dtype))
    free = free_bytes(device_named(device))
    if free is not None and free < needed:
        raise DsocrError(
            f"the session beside it needs {needed / GIB:.1f} GiB, and {free / GIB:.1f} are free on {device}; give a "
            "smaller checkpoint, or --dsocr-explain=0"
        )


def free_bytes(device: torch.device) -> int | None:
    """Return the bytes that are free; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    lines = MEMORY.read_text(encoding="utf-8").splitlines() if MEMORY.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
