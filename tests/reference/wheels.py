"""Tiny wheels in the place of an index, so that pip does its real work without a network."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

from pytest_dsocr.reference.environment import EnvironmentPlan

CODE = {
    "transformers": {"transformers/models/llama/modeling_llama.py": "LlamaFlashAttention2 = type"},
    "numpy": {"numpy/__init__.py": "raise ModuleNotFoundError('a stand-in, without which torch can do')"},
}


def write_wheels_of(plan: EnvironmentPlan, folder: Path) -> None:
    """Write a wheel for every package that the plan's pins name."""
    for pin in plan.pins:
        name, _, version = pin.partition("==")
        write_wheel(folder, name, version or "1.0", code=CODE.get(name, {}))


def write_wheel(
    folder: Path, name: str, version: str, *, requires: str = "", code: Mapping[str, str] | None = None
) -> None:
    """Write a wheel that holds a module of its name, with whatever files of code besides."""
    folder.mkdir(exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{module}/__init__.py": f"__version__ = {version!r}\n",
        **(code or {}),
        f"{info}/METADATA": metadata + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
