"""Around the vendor's files: what they import, and whether an environment can import them.

:func:`load_in` runs this module by the interpreter of that environment.
"""

import ast
import importlib.util
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.reference.anchors import parse_python
from pytest_dsocr.reference.environment import check_vendor_folder, command_in

TIME_LIMIT_S = 300
TAIL_LINES = 12


@dataclass(frozen=True)
class Loaded:
    """How an environment loads the vendor's files."""

    python: str
    versions: Mapping[str, str | None]
    """By module, of its package; None where the environment lacks it."""
    fault: str
    """Why the files could not be imported; empty where they were."""


def load_in(python: Path, folder: Path, time_limit_s: float = TIME_LIMIT_S) -> Loaded:
    """Import the vendor's files by another interpreter, and say whether it could.

    Raises:
        DsocrError: where the interpreter breaks down, with the end of what it said.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "loaded.json")
        command = command_in(python, __name__, str(folder.absolute()), str(out), *modules_of(folder))
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
        return Loaded(**json.loads(out.read_bytes()))


def main(folder: str, out: str, *modules: str) -> None:
    """Import the vendor's files in this environment; write a :class:`Loaded` to ``out``."""
    from pytest_dsocr.reference.vendor_code.code import load_vendor_code  # torch takes long, and may be missing

    sys.dont_write_bytecode = True
    said: dict[str, Any] = {"python": platform.python_version(), "versions": _versions(modules), "fault": ""}
    try:
        load_vendor_code(Path(folder))
    except DsocrError as error:
        said["fault"] = str(error)
    except Exception as error:
        said["fault"] = f"{type(error).__name__}: {error}"
    Path(out).write_text(json.dumps(said), encoding="utf-8")


def modules_of(folder: Path) -> dict[str, bool]:
    """Return the third-party modules that the vendor's files import, and whether they do so unconditionally."""
    found: dict[str, bool] = {}
    for name in check_vendor_folder(folder).vendor.files:
        tree = parse_python(folder / name)
        for node in ast.walk(tree):
            for module in _imported(node):
                found[module] = found.get(module, False) or node in tree.body
    return {name: found[name] for name in sorted(found, key=str.lower) if name not in sys.stdlib_module_names}


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level and node.module:
        return [node.module.split(".")[0]]
    return []


def _versions(modules: Sequence[str]) -> dict[str, str | None]:
    packages = metadata.packages_distributions()
    found: dict[str, str | None] = {}
    for module in modules:
        if module in packages:
            found[module] = metadata.version(packages[module][0])
        else:
            found[module] = None if importlib.util.find_spec(module) is None else "unknown"
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
