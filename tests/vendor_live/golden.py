"""What the recorders share: what a golden says of its making, and how it is laid out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pytest_dsocr.observation.provenance import versions
from pytest_dsocr.reference.vendor_code.code import VendorCode
from tests.recordings import FOLDER


def path_of(kind: str) -> Path:
    """Where a recording that depends on the installed Pillow goes."""
    return FOLDER / f"{kind}-pillow-{version('pillow').split('.')[0]}.json"


def provenance(code: VendorCode, command: str, overrides: Sequence[str]) -> dict[str, Any]:
    """How a golden was made: the vendor's files, what was put in their place, versions, date and command."""
    return {
        "command": f"python -m tests.vendor_live.{command}",
        "date": datetime.now(UTC).date().isoformat(),
        "vendor_sha256": code.sha256,
        "overrides": [*code.overrides, *overrides, "Tensor.cuda: stays on the CPU"],
        "versions": versions(),
    }


def one_line_a_case(head: Mapping[str, Any], sections: Mapping[str, Sequence[Any] | Mapping[str, Any]]) -> str:
    """Lay out a golden as JSON that is read and compared by the line."""
    parts = [f'"{name}": {json.dumps(value, indent=1)}' for name, value in head.items()]
    for name, cases in sections.items():
        if isinstance(cases, Mapping):
            lines = [f"{json.dumps(key)}: {json.dumps(case, ensure_ascii=False)}" for key, case in cases.items()]
            parts.append(f'"{name}": {{\n' + ",\n".join(lines) + "\n}")
        else:
            parts.append(f'"{name}": [\n' + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"
