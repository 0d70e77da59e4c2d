"""Imports between the package's rooms, compared with the table in ``docs/rooms.md``."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_dsocr
from tests.checkout import CHECKOUT
from tests.markdown import table

PACKAGE = Path(pytest_dsocr.__file__).parent
MAY_IMPORT = {row[0].strip("`"): row[-1].strip("| ").split(", ") for row in table("docs/rooms.md", "room")}
"""Rooms with those that each imports: at the top of a module, in a function, or for types."""
PARTS = {part.strip("` "): row[1].strip("| ") for row in table("docs/rooms.md", "part") for part in row[0].split(",")}
"""Parts of a model's folder, each with the room that loads it."""
OF_CALLERS = {"__init__", "__main__"}


def test_every_room_is_listed_and_says_what_it_is_for() -> None:
    found = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"suites"}
    assert found == {*MAY_IMPORT}
    assert {path.stem for path in PACKAGE.glob("*.py")} == OF_CALLERS, "no module lies loose"
    for room in MAY_IMPORT:
        assert ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text(encoding="utf-8"))), room


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_what_it_may_and_nothing_from_above(room: str) -> None:
    """Compare a room's imports with the table; no room imports ``ci``, suites or tests."""
    names, allowed = [*MAY_IMPORT], {*MAY_IMPORT[room]} - {""}
    assert allowed <= {*names[: names.index(room)]}, f"{room} may import only what stands in front of it"
    files = [path for path in (PACKAGE / room).rglob("*.py") if room != "models" or part_of(path) is None]
    imported = {one for path in files for one in imported_by(path)}
    assert not {"ci", "suites", "tests"} & {one.partition(".")[0] for one in imported}
    parts = {tuple(one.split(".")[:2]) for one in imported if one.startswith(f"{PACKAGE.name}.")}
    others = {part for _, part in parts if part in MAY_IMPORT} - {room}
    assert others == allowed, "move what is imported to a lower room; take out of the table what is imported no more"


def part_of(path: Path) -> str | None:
    """Return the room that loads a file of a model's folder; None for a file without torch."""
    _, *names = path.relative_to(PACKAGE / "models").with_suffix("").parts
    return next((PARTS[name] for name in names if name in PARTS), None)


MODEL_FILES = [path for path in (PACKAGE / "models").rglob("*.py") if part_of(path)]


@pytest.mark.parametrize("path", MODEL_FILES, ids=lambda path: path.relative_to(PACKAGE / "models").as_posix())
def test_a_part_of_a_model_imports_what_the_room_may_that_loads_it(path: Path) -> None:
    room = part_of(path) or ""
    allowed = {*MAY_IMPORT[room], room, "models", "layers"}
    imported = (one.split(".") for one in imported_by(path))
    assert {one[1] for one in imported if one[0] == PACKAGE.name and one[1] in MAY_IMPORT} <= allowed


def imported_by(path: Path) -> Iterator[str]:
    """Yield the full names of all modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "import by the full name"
            yield from (f"{node.module}.{one.name}" for one in node.names)


TESTS = Path(__file__).parent
LISTED = TESTS.joinpath("quick.txt").read_text(encoding="utf-8").split()


def test_every_room_is_in_it() -> None:
    rooms = {folder.name for folder in (CHECKOUT / "pytest_dsocr").iterdir() if (folder / "__init__.py").is_file()}
    tested = {room for room in rooms if (TESTS / room).is_dir()}
    assert {Path(path).parts[1] for path in LISTED if path.startswith("tests/")} >= tested


def test_what_it_lists_is_there() -> None:
    files = [re.sub("^--(ignore|deselect)=", "", path).partition("::")[0] for path in LISTED]
    assert [file for file in files if not (CHECKOUT / file).exists()] == []


def test_what_is_thorough_is_what_the_others_leave_out() -> None:
    left_out = re.findall(r"--ignore=(\S+?)[\s}]", CHECKOUT.joinpath("tox.ini").read_text(encoding="utf-8"))
    assert sorted(left_out) == sorted(TESTS.joinpath("thorough.txt").read_text(encoding="utf-8").split())
