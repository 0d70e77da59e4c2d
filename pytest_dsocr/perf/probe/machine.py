"""Which machine this is, as far as times depend on it."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.process import cores
from pytest_dsocr.perf.probe.conditions import Gpu

PACKAGES = ("torch", "transformers", "tokenizers", "pillow", "numpy", "flash-attn", "triton", "pytest-dsocr")


def machine(device: str) -> dict[str, Any]:
    """Give the CPU and the cores that this process may use; on a GPU, its model, count, driver and power cap too."""
    found: dict[str, Any] = {"cpu": _cpu(), "cores": cores(), "system": f"{platform.system()} {platform.machine()}"}
    if device.startswith("cuda"):
        import torch

        found |= {"gpu": torch.cuda.get_device_name(device), "gpus": torch.cuda.device_count()}
        found |= known.identity if (known := Gpu.of(device)) else {}
    return found


def versions() -> dict[str, str]:
    """Give the versions that times depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()
