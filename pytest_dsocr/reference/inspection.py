"""Around the vendor's files: which are really loaded, what they import, and which other copies exist.

Run as a program by the interpreter of the vendor's environment, it imports the files and says what was loaded.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.reference.anchors import SYMBOLS, parse_python
from pytest_dsocr.reference.environment import FILES, command_in

MODULE = "pytest_dsocr.reference.inspection"
TIME_LIMIT_S = 300
TAIL_LINES = 12


@dataclass(frozen=True)
class Source:
    """Where something that was imported stands."""

    file: Path
    line: int
    sha256: str


@dataclass(frozen=True)
class Loaded:
    """How an environment loads the vendor's files."""

    python: str
    versions: Mapping[str, str | None]
    """By module, of its package; None where the environment lacks it."""
    symbols: Mapping[str, Source]
    attention: Mapping[str, Source]
    """The classes in the vendor's table of attentions."""
    stale: tuple[str, ...]
    """Files in whose place a compiled file of another source was run."""
    fault: str
    """Why the files could not be imported, if they could not."""


def load_in(python: Path, folder: Path, time_limit_s: float = TIME_LIMIT_S) -> Loaded:
    """Import the vendor's files by another interpreter, and say what was loaded.

    Raises:
        DsocrError: where the interpreter breaks down, with the end of what it said.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "loaded.json")
        command = command_in(
            python, "pytest_dsocr.reference.inspection", str(folder.absolute()), str(out), *modules_of(folder)
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
        return _loaded(out.read_text(encoding="utf-8"))


def modules_of(folder: Path) -> dict[str, bool]:
    """Give the third-party modules that the vendor's files import, and whether they do so unconditionally."""
    found: dict[str, bool] = {}
    for name in FILES:
        tree = parse_python(folder / name)
        for node in ast.walk(tree):
            for module in _imported(node):
                found[module] = found.get(module, False) or node in tree.body
    return {name: found[name] for name in sorted(found, key=str.lower) if name not in sys.stdlib_module_names}


def transformers_of(folder: Path) -> str | None:
    """Give the version of transformers that the model's configuration names, if there is one."""
    try:
        version = json.loads((folder / "config.json").read_text(encoding="utf-8"))["transformers_version"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(version)


def copies_of(folder: Path) -> dict[Path, tuple[str, ...]]:
    """Find copies in the hub's cache of modules, and the files in which each differs from ``folder``."""
    copies = sorted(path.parent for path in (_modules_cache() / "transformers_modules").rglob(FILES[0]))
    return {
        copy: tuple(name for name in FILES if _content(copy / name) != _content(folder / name))
        for copy in copies
        if not copy.samefile(folder)
    }


def _loaded(text: str) -> Loaded:
    said = json.loads(text)
    symbols, attention = (
        {name: Source(Path(one["file"]), one["line"], one["sha256"]) for name, one in said.get(kind, {}).items()}
        for kind in ("symbols", "attention")
    )
    return Loaded(
        said["python"], said["versions"], symbols, attention, tuple(said.get("stale", ())), said.get("fault", "")
    )


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level and node.module:
        return [node.module.split(".")[0]]
    return []


def _modules_cache() -> Path:
    """Give the folder from which transformers runs the code of models."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    named = os.environ.get("HF_MODULES_CACHE")
    return Path(named) if named else Path(os.environ.get("HF_HOME") or usual) / "modules"


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def main(folder: str, out: str, *modules: str) -> None:
    """Write to ``out`` what was loaded from ``folder``, and the versions of the packages that have ``modules``."""
    sys.dont_write_bytecode = True
    said: dict[str, Any] = {"python": platform.python_version(), "versions": _versions(modules)}
    try:
        said |= _imported_from(Path(folder))
    except DsocrError as error:
        said["fault"] = str(error)
    except Exception as error:
        said["fault"] = f"{type(error).__name__}: {error}"
    Path(out).write_text(json.dumps(said), encoding="utf-8")


def _imported_from(folder: Path) -> dict[str, Any]:
    from pytest_dsocr.reference.vendor_code.code import IMPORTED_AS, load_vendor_code  # brings torch

    code = load_vendor_code(folder)
    loaded = [code.modeling, *(sys.modules[f"{IMPORTED_AS}.{Path(name).stem}"] for name in FILES)]
    classes: dict[str, type] = getattr(loaded[2], "ATTENTION_CLASSES", {})
    return {
        "symbols": {symbol: place for symbol in SYMBOLS if (place := _place(symbol, loaded))},
        "attention": {name: _source_of(one) for name, one in classes.items()},
        "stale": [Path(str(module.__file__)).name for module in loaded[1:] if _is_stale(module)],
    }


def _place(symbol: str, modules: list[ModuleType]) -> dict[str, Any] | None:
    """Find a symbol as the model would: by what the main module calls by that name, else where it is defined."""
    first, *rest = symbol.split(".")
    for module in modules:
        found = getattr(module, first, None)
        for name in rest:
            found = getattr(found, name, None)
        if found is not None:
            return _source_of(found if inspect.isclass(found) or inspect.isfunction(found) else module)
    return None


def _source_of(found: Any) -> dict[str, Any]:
    found = inspect.unwrap(found)
    file = Path(str(inspect.getsourcefile(found)))
    return {
        "file": str(file),
        "line": inspect.getsourcelines(found)[1],
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }


def _is_stale(module: ModuleType) -> bool:
    """Tell whether what ran is a compiled file of another source, which Python takes if size and time agree."""
    loader = module.__spec__.loader if module.__spec__ else None
    if not isinstance(loader, SourceFileLoader):
        return False
    path = loader.get_filename(module.__name__)
    return bool(loader.get_code(module.__name__) != loader.source_to_code(Path(path).read_bytes(), path))


def _versions(modules: tuple[str, ...]) -> dict[str, str | None]:
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
