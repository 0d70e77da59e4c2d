"""What is read from a part of the vendor's syntax tree: its hash, and details that are reported separately."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

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
    """Give the details of a symbol of the contract, by name, less those of the nodes ``without``."""
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
    """Give a name with its attributes; what bears no name is left out, as in ``.item`` of a call's result."""
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
