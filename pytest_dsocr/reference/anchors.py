"""Where the vendor's files hold what the contract rests on: found by parsing, without importing anything.

A file's pinned hash says only that the file changed; the hashes of its parts say which stage of the contract is
affected, and comments do not count. None of the vendor's code is kept, only names, line numbers and hashes.
"""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.reference.environment import FILES, check_vendor_folder

HASH_DIGITS = 16

_CACHE_NAME = re.compile(r"past_key_value|cache", re.IGNORECASE)


@dataclass(frozen=True)
class Detail:
    """A detail that is reported separately from the code around it, such as the image gate."""

    lines: tuple[int, ...]
    names: tuple[str, ...]
    """What it reads, passes or calls."""
    tree: str = ""
    text: str = ""
    """As it stands in the user's file: for the screen, and never kept."""


def tree_hash(node: ast.AST, without: frozenset[ast.AST] = frozenset()) -> str:
    """Hash a syntax tree, less the nodes ``without``; comments, layout and Python's version do not count."""
    return hashlib.sha256(_dump(node, without - {node}).encode()).hexdigest()[:HASH_DIGITS]


def details_of(symbol: str, node: ast.AST, without: frozenset[ast.AST] = frozenset()) -> dict[str, Detail]:
    """Return the details of a symbol of the contract, by name, less those of the nodes ``without``."""
    parts = list(_walk(node, without - {node}))
    finders = [_FINDERS[symbol], _cache_uses] if symbol in _FINDERS else [_cache_uses]
    return dict(detail for find in finders for detail in find(parts))


def _dump(node: Any, without: frozenset[ast.AST]) -> str:
    if isinstance(node, ast.AST):
        # Newer versions of Python add fields, empty where the code needs none.
        fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
        return f"{type(node).__name__}({','.join(f'{name}={_dump(value, without)}' for name, value in fields)})"
    if isinstance(node, list):
        return f"[{','.join(_dump(item, without) for item in node if item not in without)}]"
    return repr(node)


def _image_gate(parts: Sequence[ast.AST]) -> Iterator[tuple[str, Detail]]:
    """Find the outermost condition under which SAM is run."""
    gates = (part for part in parts if isinstance(part, ast.If) and _runs_sam(part))
    for gate in islice(gates, 1):
        reads = sorted({name for part in ast.walk(gate.test) if (name := _name(part))})
        longest = tuple(name for name in reads if not any(other.startswith(f"{name}.") for other in reads))
        yield "image gate", Detail((gate.lineno,), longest, tree_hash(gate.test), ast.unparse(gate.test))


def _runs_sam(condition: ast.If) -> bool:
    return any("sam_model" in _name(call.func) for statement in condition.body for call in _calls(ast.walk(statement)))


def _generate_calls(parts: Sequence[ast.AST]) -> Iterator[tuple[str, Detail]]:
    for count, call in enumerate((call for call in _calls(parts) if _name(call.func) == "self.generate"), 1):
        keywords = tuple(keyword.arg or "**" for keyword in call.keywords)
        yield f"generate call {count}", Detail((call.lineno,), keywords, tree_hash(call))


def _image_keys(parts: Sequence[ast.AST]) -> Iterator[tuple[str, Detail]]:
    """Find the keys of what is handed to ``forward`` that have to do with images."""
    keys = [key for part in parts if isinstance(part, ast.Dict) for key in part.keys]
    keys += [part.slice for part in parts if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store)]
    texts = [(key.lineno, key.value) for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    of_images = [(line, text) for line, text in texts if text.startswith("image")]
    yield "image keys", Detail(tuple(line for line, _ in of_images), tuple(text for _, text in of_images))


def _classes(parts: Sequence[ast.AST]) -> Iterator[tuple[str, Detail]]:
    tables = [part for part in parts if isinstance(part, ast.Dict)]
    rows = [row for table in tables for row in zip(table.keys, table.values, strict=True)]
    names = tuple(f"{key.value!s}: {_name(value)}" for key, value in rows if isinstance(key, ast.Constant))
    yield "classes", Detail(tuple(value.lineno for _, value in rows), names)


def _cache_uses(parts: Sequence[ast.AST]) -> Iterator[tuple[str, Detail]]:
    called = {call.func for call in _calls(parts)}
    uses = [
        part
        for part in parts
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and _CACHE_NAME.search(part.value.id)
    ]
    if uses:
        names = tuple(f"{_name(use)}()" if use in called else _name(use) for use in uses)
        yield "cache", Detail(tuple(use.lineno for use in uses), names)


_FINDERS: Mapping[str, Callable[[Sequence[ast.AST]], Iterator[tuple[str, Detail]]]] = {
    "DeepseekOCRModel.forward": _image_gate,
    "DeepseekOCRForCausalLM.infer": _generate_calls,
    "DeepseekOCRForCausalLM.prepare_inputs_for_generation": _image_keys,
    "ATTENTION_CLASSES": _classes,
}


def _walk(node: ast.AST, without: frozenset[ast.AST]) -> Iterator[ast.AST]:
    """Go through a tree in the order of its text, which ``ast.walk`` does not."""
    yield node
    for child in ast.iter_child_nodes(node):
        if child not in without:
            yield from _walk(child, without)


def _calls(parts: Iterable[ast.AST]) -> Iterator[ast.Call]:
    return (part for part in parts if isinstance(part, ast.Call))


def _name(node: ast.AST) -> str:
    """Return a name with its attributes; what bears no name is left out, as in ``.item`` of a call's result."""
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


CONTRACT = DEFAULT.vendor.contract
"""By stage, what the contract was read from: functions, classes, methods and tables, in whichever file they stand."""

SYMBOLS = tuple(symbol for symbols in CONTRACT.values() for symbol in symbols)


@dataclass(frozen=True)
class Anchor:
    """A function, class, method or table of the contract."""

    file: str
    line: int
    tree: str
    """Hash of its syntax tree, less the anchors inside it."""
    details: Mapping[str, Detail] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceFile:
    """One of the vendor's files."""

    bytes: int
    sha256: str
    rest: str
    """Hash of its syntax tree, less the anchors inside it."""


@dataclass(frozen=True)
class Anchors:
    """What was found in a folder; a symbol that is nowhere in it is absent."""

    files: Mapping[str, SourceFile]
    symbols: Mapping[str, Anchor]


def read_anchors(folder: Path) -> Anchors:
    """Parse the vendor's files in ``folder``.

    Raises:
        DsocrError: where a file is missing or is not Python.
    """
    check_vendor_folder(folder)
    trees = {name: parse_python(folder / name) for name in FILES}
    places = {symbol: (file, node) for file, tree in trees.items() for symbol, node in _definitions(tree.body)}
    places = {symbol: places[symbol] for symbol in SYMBOLS if symbol in places}
    inner = frozenset(node for _, node in places.values())
    return Anchors(
        {name: _source_file(folder / name, tree_hash(tree, inner)) for name, tree in trees.items()},
        {
            symbol: Anchor(file, node.lineno, tree_hash(node, inner), details_of(symbol, node, inner))
            for symbol, (file, node) in places.items()
        },
    )


def parse_python(path: Path) -> ast.Module:
    """Parse a file; raise ``DsocrError`` where it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in the vendor's strings
            return ast.parse(path.read_bytes(), path.name)
    except (SyntaxError, ValueError) as error:  # the latter for a zero byte, before Python 3.11.4
        raise DsocrError(f"{path} is not Python ({error}); get the file again") from error


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
