"""Devices and dtypes by the names that users type."""

from __future__ import annotations

import torch

from pytest_dsocr.foundation.errors import DsocrError, MachineError

DTYPES = {
    "float32": torch.float32,
    "fp32": torch.float32,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float16": torch.float16,
    "fp16": torch.float16,
}


def dtype_named(name: str | torch.dtype) -> torch.dtype:
    """Give the dtype called ``name``; raise ``DsocrError`` listing the valid ones."""
    if isinstance(name, torch.dtype):
        name = str(name).removeprefix("torch.")
    if name not in DTYPES:
        raise DsocrError(f"dtype {name!r} is unknown; choose one of {', '.join(DTYPES)}")
    return DTYPES[name]


def device_named(name: str | torch.device) -> torch.device:
    """Give the device called ``name``; raise ``DsocrError`` where this machine does not have it."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise DsocrError(f"device {name!r} is unknown; choose cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise DsocrError(f"device {name!r} is not supported; choose cpu, cuda or cuda:N")
    if device.type == "cuda":
        _require_gpu(device)
    return device


def _require_gpu(device: torch.device) -> None:
    if not torch.cuda.is_available():
        raise MachineError(
            f"device {str(device)!r} was asked for and PyTorch finds no CUDA GPU; "
            "choose cpu, or install a CUDA build of PyTorch on a machine with a GPU"
        )
    if (device.index or 0) >= torch.cuda.device_count():
        raise MachineError(
            f"device {str(device)!r} was asked for and there are {torch.cuda.device_count()} GPUs; "
            f"choose cuda:0 to cuda:{torch.cuda.device_count() - 1}"
        )
