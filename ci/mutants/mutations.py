"""The small changes (mutants) that can be made to a file of Python.

Left out: types, docstrings, imports, assertions, ``dataclass`` decorators, ``strict`` of ``zip``, and the words of
messages (any text that holds a space, and the parts of an f-string): a test that repeats a message finds no mistake.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OTHER_COMPARISON: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OTHER_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
KINDS = ("comparison", "condition", "and, or, not", "arithmetic", "number", "text", "statement")
"""Another operator of comparison; a condition negated; ``and`` for ``or``, or a ``not`` left out; another operator of
arithmetic; a number one larger, or True for False; a text altered; a statement or a returned value left out."""
SHOWN = 100


@dataclass(frozen=True)
class Mutant:
    """One change to a file.

    Args:
        file: from the repository's root, with slashes.
        within: the outermost function that it is in, as ``__qualname__`` names it; empty where it is in none.
        kind: one of ``KINDS``.
        old: the code changed, as ``ast.unparse`` writes it.
        new: what it is changed to.
        nth: which of those equal in all the above.
        lines: the first and the last of the statement; of a compound one, those of its head.
        place: of the node changed, counted from the top of the file.
        choice: which of the changes of that node.
    """

    file: str
    within: str
    kind: str
    old: str
    new: str
    nth: int
    lines: tuple[int, int]
    place: int
    choice: int

    @property
    def key(self) -> str:
        """What names it, as long as the code that it changes stays."""
        return f"{self.file}::{self.within}::{self.kind}::{self.old} -> {self.new} #{self.nth}"


@dataclass(frozen=True)
class _Place:
    parent: ast.AST
    field: str
    at: int | None
    node: ast.AST
    within: str
    lines: tuple[int, int]

    def put(self, node: ast.AST) -> None:
        new = ast.fix_missing_locations(ast.copy_location(node, self.node))
        if self.at is None:
            setattr(self.parent, self.field, new)
        else:
            getattr(self.parent, self.field)[self.at] = new


def mutants(root: Path, file: str) -> list[Mutant]:
    """Give all mutants of a file."""
    found: list[Mutant] = []
    seen: Counter[tuple[str, ...]] = Counter()
    for number, place in enumerate(_places(ast.parse((root / file).read_text(encoding="utf-8")))):
        old = _short(place.node)
        for choice, (kind, new) in enumerate(_changes(place)):
            same = (place.within, kind, old, _short(new))
            found.append(Mutant(file, *same, seen[same], place.lines, number, choice))
            seen[same] += 1
    return found


def mutated(root: Path, mutant: Mutant) -> ast.Module:
    """Give the file's code with the change made."""
    tree = ast.parse((root / mutant.file).read_text(encoding="utf-8"))
    place = list(_places(tree))[mutant.place]
    place.put(list(_changes(place))[mutant.choice][1])
    return tree


def _short(node: ast.AST) -> str:
    words = " ".join(ast.unparse(node).split())
    return words if len(words) <= SHOWN else words[: SHOWN - 3] + "..."


def _places(tree: ast.Module) -> Iterator[_Place]:
    yield from _below(tree, (), "", (0, 0))


def _below(parent: ast.AST, names: tuple[str, ...], within: str, lines: tuple[int, int]) -> Iterator[_Place]:
    for field, value in ast.iter_fields(parent):
        several = isinstance(value, list)
        for at, node in enumerate(value if several else [value]):
            if not isinstance(node, ast.AST) or _is_left_out(parent, field, node):
                continue
            starts = isinstance(parent, ast.FunctionDef) and field == "body" and not within
            inside = ".".join(names) if starts else within
            its_lines = _head(node) if isinstance(node, ast.stmt) else lines
            yield _Place(parent, field, at if several else None, node, inside, its_lines)
            its_names = (*names, node.name) if isinstance(node, ast.FunctionDef | ast.ClassDef) else names
            yield from _below(node, its_names, inside, its_lines)


def _head(node: ast.stmt) -> tuple[int, int]:
    body = getattr(node, "body", None)
    return node.lineno, max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno


def _is_left_out(parent: ast.AST, field: str, node: ast.AST) -> bool:
    return (
        field in ("annotation", "returns")
        or isinstance(node, ast.Import | ast.ImportFrom | ast.Assert)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        or (field == "decorator_list" and ast.unparse(node).startswith("dataclass"))
        or (isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal")
        or (isinstance(node, ast.keyword) and node.arg == "strict")
    )


def _changes(place: _Place) -> Iterator[tuple[str, ast.AST]]:
    node = place.node
    if place.field in ("test", "ifs") and isinstance(node, ast.expr) and _is_worth_negating(node):
        yield "condition", ast.UnaryOp(ast.Not(), node)
    match node:
        case ast.Compare(left, [op], comparators) if type(op) in OTHER_COMPARISON:
            yield "comparison", ast.Compare(left, [OTHER_COMPARISON[type(op)]()], comparators)
        case ast.Compare(left, [first, second], comparators):
            yield "comparison", ast.Compare(left, [OTHER_COMPARISON[type(first)](), second], comparators)
            yield "comparison", ast.Compare(left, [first, OTHER_COMPARISON[type(second)]()], comparators)
        case ast.BoolOp(op, values):
            yield "and, or, not", ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield "and, or, not", operand
        case ast.UnaryOp(ast.USub(), operand):
            yield "arithmetic", operand
        case ast.BinOp(left, op, right) if type(op) in OTHER_ARITHMETIC and not (_is_text(left) or _is_text(right)):
            yield "arithmetic", ast.BinOp(left, OTHER_ARITHMETIC[type(op)](), right)
        case ast.Constant(bool() as value):
            yield "number", ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield "number", ast.Constant(value + 1)
        case ast.Constant(str() as value) if " " not in value and not isinstance(place.parent, ast.JoinedStr):
            yield "text", ast.Constant(value + "XX")
        case ast.Continue():
            yield "statement", ast.Break()
        case ast.Break():
            yield "statement", ast.Continue()
        case ast.Raise() | ast.AugAssign() | ast.Expr():
            yield "statement", ast.Pass()
        case ast.Return(ast.expr() as value) if ast.unparse(value) not in ("None", "False"):
            yield "statement", ast.Return(ast.Constant(None))


def _is_worth_negating(node: ast.expr) -> bool:
    """Whether that differs from the other changes of the same condition."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
    return not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
