"""A mistake's id is a name: code compares it whole, and reads the mistake's properties from its fields."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkout import CHECKOUT

PACKAGE = CHECKOUT / "pytest_dsocr"
MODULES = [*PACKAGE.glob("explain/**/*.py"), *PACKAGE.glob("models/*/mistakes/*.py")]
PATTERNS = ("match", "search", "fullmatch", "findall", "split", "sub")


def parsed_ids(code: str) -> Iterator[str]:
    """Yield the expressions that look inside of an ``id``."""
    for node in ast.walk(ast.parse(code)):
        looked_at: list[ast.expr] = []
        if isinstance(node, ast.Attribute | ast.Subscript):
            looked_at = [node.value]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            looked_at = [*node.comparators] if isinstance(node.left, ast.Constant) else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PATTERNS:
            looked_at = node.args
        if any(isinstance(one, ast.Attribute) and one.attr == "id" for one in looked_at):
            yield ast.unparse(node)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_code_reads_a_property_from_an_id(path: Path) -> None:
    assert not [*parsed_ids(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    "code", ["one.id.partition('.')", "one.id[:3]", "'relative' in one.id", "SMALL.search(one.id)"]
)
def test_parsing_an_id_is_noticed(code: str) -> None:
    assert [*parsed_ids(code)] != []
