"""Whether one more session fits beside what a run holds already."""

from __future__ import annotations

from pathlib import Path

import torch

from pytest_dsocr.engine.checkpoint import device_named, dtype_named, resolve
from pytest_dsocr.engine.model import weights_bytes
from pytest_dsocr.foundation.errors import DsocrError

ALLOWANCE = 1.5
"""Of the weights' bytes: what is computed takes memory as well."""
MEMORY = Path("/proc/meminfo")
GIB = 2**30


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
    """Give the bytes that are free; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    lines = MEMORY.read_text(encoding="utf-8").splitlines() if MEMORY.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
