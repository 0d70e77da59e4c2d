"""Who may import whom: the package's rooms, lowest first, and no way back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_dsocr

PACKAGE = Path(pytest_dsocr.__file__).parent
MAY_IMPORT = {
    "foundation": "",
    "contract": "foundation",
    "families": "contract",
    "observation": "foundation contract families",
    "engine": "foundation contract families",
    "cost": "foundation contract families engine",
    "subjects": "foundation contract families observation engine",
    "reference": "foundation contract families observation engine subjects",
    "compare": "foundation contract families observation",
    "explain": "foundation contract families observation engine subjects reference compare",
    "perf": "foundation families engine cost subjects",
    "pages": "foundation contract families observation",
    "adapters": "foundation contract families observation engine subjects reference pages",
    "doctor": "foundation contract observation engine reference perf pages",
    "report": "foundation contract observation cost reference compare explain perf",
    "cases": "foundation contract families observation engine subjects reference compare explain report",
    "night": "foundation families compare perf pages report",
    "plugin": "foundation contract families observation engine cost subjects reference compare explain perf "
    "pages report cases",
    "cli": "foundation contract observation engine cost reference explain perf pages adapters doctor report "
    "night plugin",
}
"""Each room with those that it imports, at any time: at the top of a module, in a function, or for types alone."""
OF_CALLERS = {"__init__", "__main__"}


def test_every_room_is_listed_and_says_what_it_is_for() -> None:
    found = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"suites"}
    assert found == {*MAY_IMPORT}
    assert {path.stem for path in PACKAGE.glob("*.py")} == OF_CALLERS, "no module lies loose"
    for room in MAY_IMPORT:
        assert ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text(encoding="utf-8"))), room


def test_the_arrows_go_one_way() -> None:
    names = [*MAY_IMPORT]
    for place, room in enumerate(names):
        assert {*MAY_IMPORT[room].split()} <= {*names[:place]}, f"{room} may import only what stands in front of it"


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_what_it_may(room: str) -> None:
    found = {other: at for other, at in imported_by(PACKAGE / room) if other != room}
    others = {other: at for other, at in found.items() if other not in MAY_IMPORT[room].split()}
    assert not others, "move what is imported to a lower room, or hand it over as an argument"
    assert {*found} == {*MAY_IMPORT[room].split()}, "take out of the list what is imported no more"


def imported_by(room: Path) -> Iterator[tuple[str, str]]:
    """The rooms that a room's modules import, each with a place where."""
    for path in sorted(room.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in names_in(node):
                package, _, rest = name.partition(".")
                if package == PACKAGE.name and rest and rest.partition(".")[0] != "__version__":
                    yield rest.partition(".")[0], f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"


def names_in(node: ast.AST) -> Iterator[str]:
    """The modules that a statement imports, by their full names; relative ones are not used here."""
    if isinstance(node, ast.Import):
        yield from (one.name for one in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "import by the full name"
        yield from (f"{node.module}.{one.name}" for one in node.names)


def test_the_package_stands_by_itself() -> None:
    """An installation has no ``ci``, and the suites stand above the package."""
    found = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for room in MAY_IMPORT
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in names_in(node)
        if name.partition(".")[0] in ("ci", "suites")
    }
    assert not found
