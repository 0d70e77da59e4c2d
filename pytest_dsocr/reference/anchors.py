"""Anchors: the places in the vendor's files that the contract depends on, found by parsing.

The hash of a whole file says only that it changed. The hashes of its anchors say which stage is affected, and ignore
comments. Names, line numbers and hashes are kept, but none of the vendor's code.
"""

import ast
import hashlib
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.reference.details import Detail, details_of, tree_hash
from pytest_dsocr.reference.environment import check_vendor_folder


@dataclass(frozen=True)
class Anchor:
    """A function, class, method or table that the contract depends on."""

    file: str
    line: int
    tree: str
    """Hash of the syntax tree without the anchors inside it."""
    details: Mapping[str, Detail] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceFile:
    """Size and hashes of a file of the vendor's."""

    bytes: int
    sha256: str
    rest: str
    """Hash of the syntax tree without the anchors inside it."""


@dataclass(frozen=True)
class Anchors:
    """Files and anchors of a folder; symbols that were not found are absent."""

    files: Mapping[str, SourceFile]
    symbols: Mapping[str, Anchor]


def read_anchors(folder: Path) -> Anchors:
    """Parse the vendor's files in ``folder``.

    Raises:
        DsocrError: if a file is missing or is not Python.
    """
    family = check_vendor_folder(folder)
    vendor, encoder = family.vendor, family.of_views[0].module.rpartition(".")[2]
    trees = {name: _parsed(folder / name) for name in vendor.files}
    places = {symbol: (file, node) for file, tree in trees.items() for symbol, node in _definitions(tree.body)}
    places = {symbol: places[symbol] for symbol in chain(*vendor.contract.values()) if symbol in places}
    inner = frozenset(node for _, node in places.values())
    return Anchors(
        {name: _source_file(folder / name, tree_hash(tree, inner)) for name, tree in trees.items()},
        {
            symbol: Anchor(file, node.lineno, tree_hash(node, inner), details_of(symbol, node, inner, encoder))
            for symbol, (file, node) in places.items()
        },
    )


def _parsed(path: Path) -> ast.Module:
    """Parse a file; raise ``DsocrError`` if it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in the vendor's strings
            return ast.parse(path.read_bytes(), path.name)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise DsocrError(f"{path} is not Python ({str(error) or 'nested too deep'}); get the file again") from error


def _definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.stmt]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from _definitions(node.body, f"{node.name}.")
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield prefix + node.targets[0].id, node


def _source_file(path: Path, rest: str) -> SourceFile:
    content = path.read_bytes()
    return SourceFile(len(content), hashlib.sha256(content).hexdigest(), rest)


def modules_of(folder: Path) -> dict[str, bool]:
    """Return the third-party modules that the vendor's files import, and whether each is always imported."""
    found: dict[str, bool] = {}
    for name in check_vendor_folder(folder).vendor.files:
        tree = _parsed(folder / name)
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
