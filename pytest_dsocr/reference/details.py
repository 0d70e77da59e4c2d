"""Details of anchors that ports depend on most: image gate, image keys, cache uses, ``generate`` calls.

They are found by parsing. A detail has line numbers, names and a hash, but none of the vendor's code.
"""

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HASH_DIGITS = 16
_CACHE_NAME = re.compile(r"past_key_value|cache", re.IGNORECASE)


@dataclass(frozen=True)
class Detail:
    """A part of an anchor that is reported separately."""

    lines: tuple[int, ...]
    names: tuple[str, ...]
    """Names that it reads, passes or calls."""
    tree: str = ""
    """Hash of the syntax tree of a condition or a call."""

    def place(self, file: str) -> str:
        """Return where it is in ``file``, such as ``modeling_deepseekocr.py:685,686``."""
        return f"{file}:{','.join(map(str, self.lines))}" if self.lines else "nowhere"


def tree_hash(node: ast.AST, without: frozenset[ast.AST] = frozenset()) -> str:
    """Hash a syntax tree without some nodes; comments, layout and Python's version make no difference."""
    return hashlib.sha256(_dump(node, without - {node}).encode()).hexdigest()[:HASH_DIGITS]


def _dump(node: Any, without: frozenset[ast.AST]) -> str:
    if isinstance(node, ast.AST):
        # Newer versions of Python add fields, which are empty in older code.
        fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
        return f"{type(node).__name__}({','.join(f'{name}={_dump(value, without)}' for name, value in fields)})"
    if isinstance(node, list):
        return f"[{','.join(_dump(item, without) for item in node if item not in without)}]"
    return repr(node)


def details_of(symbol: str, node: ast.AST, without: frozenset[ast.AST], encoder: str) -> Mapping[str, Detail]:
    """Return the details of a symbol of the contract, by name.

    Args:
        symbol: its name.
        node: its syntax tree.
        without: nodes that do not count.
        encoder: the attribute that holds the first module of the vision encoder, such as ``sam_model``.
    """
    parts = list(_walk(node, without - {node}))
    found = {**_image_gate(parts, encoder), **_generate_calls(parts), **_cache_uses(parts)}
    return found | _image_keys(parts) if symbol.endswith(".prepare_inputs_for_generation") else found


def _image_gate(parts: Sequence[ast.AST], encoder: str) -> dict[str, Detail]:
    """Find the outermost condition around the call of the vision encoder."""
    gate = next((part for part in parts if isinstance(part, ast.If) and _calls(encoder, part)), None)
    if gate is None:
        return {}
    reads = {name for part in ast.walk(gate.test) if (name := _name(part))}
    longest = sorted(name for name in reads if not any(other.startswith(f"{name}.") for other in reads))
    return {"image gate": Detail((gate.lineno,), tuple(longest), tree_hash(gate.test))}


def _calls(name: str, condition: ast.If) -> bool:
    calls = (part for statement in condition.body for part in ast.walk(statement) if isinstance(part, ast.Call))
    return any(name in _name(call.func) for call in calls)


def _generate_calls(parts: Sequence[ast.AST]) -> dict[str, Detail]:
    calls = [part for part in parts if isinstance(part, ast.Call) and _name(part.func) == "self.generate"]
    found = [Detail((one.lineno,), tuple(word.arg or "**" for word in one.keywords), tree_hash(one)) for one in calls]
    return {f"generate call {number}": detail for number, detail in enumerate(found, 1)}


def _cache_uses(parts: Sequence[ast.AST]) -> dict[str, Detail]:
    called = {part.func for part in parts if isinstance(part, ast.Call)}
    uses = [part for part in parts if isinstance(part, ast.Attribute) and _CACHE_NAME.search(_name(part.value))]
    names = tuple(f"{_name(use)}()" if use in called else _name(use) for use in uses)
    return {"cache": Detail(tuple(use.lineno for use in uses), names)} if uses else {}


def _image_keys(parts: Sequence[ast.AST]) -> dict[str, Detail]:
    """Find the keys about images in the arguments of ``forward``."""
    keys = [key for part in parts if isinstance(part, ast.Dict) for key in part.keys]
    keys += [part.slice for part in parts if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store)]
    texts = [(key.lineno, key.value) for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    of_images = [(line, text) for line, text in texts if text.startswith("image")]
    return {"image keys": Detail(tuple(line for line, _ in of_images), tuple(text for _, text in of_images))}


def _walk(node: ast.AST, without: frozenset[ast.AST]) -> Iterator[ast.AST]:
    """Walk a tree in source order, unlike ``ast.walk``."""
    yield node
    for child in ast.iter_child_nodes(node):
        if child not in without:
            yield from _walk(child, without)


def _name(node: ast.AST) -> str:
    """Return a dotted name; parts without a name are omitted, as in ``.item`` of a call's result."""
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
