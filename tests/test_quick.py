"""``tox -e quick`` runs something of every room: what ``quick.txt`` lists, which pytest takes as its arguments."""

from __future__ import annotations

import re
from pathlib import Path

from tests.checkout import CHECKOUT

TESTS = Path(__file__).parent
LISTED = TESTS.joinpath("quick.txt").read_text(encoding="utf-8").split()


def test_every_room_is_in_it() -> None:
    rooms = {folder.name for folder in (CHECKOUT / "pytest_dsocr").iterdir() if (folder / "__init__.py").is_file()}
    tested = {room for room in rooms if (TESTS / room).is_dir()}
    assert {Path(path).parts[1] for path in LISTED if path.startswith("tests/")} >= tested


def test_what_it_lists_is_there() -> None:
    files = [path.removeprefix("--ignore=").partition("::")[0] for path in LISTED]
    assert [file for file in files if not (CHECKOUT / file).exists()] == []


def test_what_is_thorough_is_what_the_others_leave_out() -> None:
    left_out = re.findall(r"--ignore=(\S+?)[\s}]", CHECKOUT.joinpath("tox.ini").read_text(encoding="utf-8"))
    assert sorted(left_out) == sorted(TESTS.joinpath("thorough.txt").read_text(encoding="utf-8").split())
