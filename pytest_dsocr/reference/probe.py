"""Run by the interpreter of the vendor's environment: import the vendor's files, and say what was really loaded."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import platform
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.reference.anchors import SYMBOLS
from pytest_dsocr.reference.environment import FILES
from pytest_dsocr.reference.vendor_code.code import IMPORTED_AS, load_vendor_code


def main(folder: str, out: str, *modules: str) -> None:
    """Write to ``out`` what was loaded from ``folder``, and the versions of the packages that have ``modules``."""
    sys.dont_write_bytecode = True
    said: dict[str, Any] = {"python": platform.python_version(), "versions": _versions(modules)}
    try:
        said |= _load(Path(folder))
    except DsocrError as error:
        said["fault"] = str(error)
    except Exception as error:
        said["fault"] = f"{type(error).__name__}: {error}"
    Path(out).write_text(json.dumps(said), encoding="utf-8")


def _load(folder: Path) -> dict[str, Any]:
    code = load_vendor_code(folder)
    loaded = [code.modeling, *(sys.modules[f"{IMPORTED_AS}.{Path(name).stem}"] for name in FILES)]
    classes: dict[str, type] = getattr(loaded[2], "ATTENTION_CLASSES", {})
    return {
        "symbols": {symbol: place for symbol in SYMBOLS if (place := _place(symbol, loaded))},
        "attention": {name: _source(one) for name, one in classes.items()},
    }


def _place(symbol: str, modules: list[ModuleType]) -> dict[str, Any] | None:
    """Find a symbol as the model would: by what the main module calls by that name, else where it is defined."""
    first, *rest = symbol.split(".")
    for module in modules:
        found = getattr(module, first, None)
        for name in rest:
            found = getattr(found, name, None)
        if found is not None:
            return _source(found if inspect.isclass(found) or inspect.isfunction(found) else module)
    return None


def _source(found: Any) -> dict[str, Any]:
    found = inspect.unwrap(found)
    file = Path(str(inspect.getsourcefile(found)))
    return {
        "file": str(file),
        "line": inspect.getsourcelines(found)[1],
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }


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
