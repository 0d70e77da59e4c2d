"""Around the vendor's files: which are really loaded, what they import, and which other copies exist."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.reference.anchors import parse_python
from pytest_dsocr.reference.environment import FILES, command_in

TIME_LIMIT_S = 300
TAIL_LINES = 12


@dataclass(frozen=True)
class Source:
    """Where something that was imported stands."""

    file: str
    line: int
    sha256: str


@dataclass(frozen=True)
class Loaded:
    """How an environment loads the vendor's files."""

    python: str
    versions: Mapping[str, str | None]
    """By module, of its package; None where the environment lacks it."""
    symbols: Mapping[str, Source] = field(default_factory=dict)
    attention: Mapping[str, Source] = field(default_factory=dict)
    """The classes in the vendor's table of attentions."""
    fault: str = ""
    """Why the files could not be imported, if they could not."""


def load_in(python: Path, folder: Path, time_limit_s: float = TIME_LIMIT_S) -> Loaded:
    """Import the vendor's files by another interpreter, and say what was loaded.

    Raises:
        DsocrError: where the interpreter breaks down, with the end of what it said.
    """
    import msgspec  # here, because a worker without it imports this module

    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "loaded.json")
        command = command_in(
            python, "pytest_dsocr.reference.probe", str(folder.absolute()), str(out), *modules_of(folder)
        )
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, errors="replace", timeout=time_limit_s
            )
        except subprocess.TimeoutExpired as error:
            raise DsocrError(f"{python} was still importing {folder} after {time_limit_s:g} s; see why") from error
        except OSError as error:
            raise DsocrError(f"{python} could not be started ({error}); make the environment again") from error
        if done.returncode or not out.exists():
            said = "".join(f"\n  {line}" for line in done.stderr.splitlines()[-TAIL_LINES:])
            raise DsocrError(f"{python} failed while importing {folder}; the end of its stderr:{said}")
        return msgspec.json.decode(out.read_bytes(), type=Loaded)


def modules_of(folder: Path) -> dict[str, bool]:
    """Return the third-party modules that the vendor's files import, and whether they do so unconditionally."""
    found: dict[str, bool] = {}
    for name in FILES:
        tree = parse_python(folder / name)
        for node in ast.walk(tree):
            for module in _imported(node):
                found[module] = found.get(module, False) or node in tree.body
    return {name: found[name] for name in sorted(found, key=str.lower) if name not in sys.stdlib_module_names}


def transformers_of(folder: Path) -> str | None:
    """Return the version of transformers that the model's configuration names, if there is one."""
    try:
        version = json.loads((folder / "config.json").read_text(encoding="utf-8"))["transformers_version"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(version)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level and node.module:
        return [node.module.split(".")[0]]
    return []
