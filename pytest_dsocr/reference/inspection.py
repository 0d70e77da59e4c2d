"""What the vendor's files import, found by parsing."""

import ast
import sys
from pathlib import Path

from pytest_dsocr.reference.anchors import parse_python
from pytest_dsocr.reference.environment import check_vendor_folder


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
