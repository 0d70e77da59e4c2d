"""Damaged files of every kind that a user can pass: each is read or refused with one sentence.

DSOCR_FUZZ_EXAMPLES=5000 pytest tests/hardening/test_fuzzed_files.py
"""

import copy
import json
import math
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import seal
from pytest_dsocr.report.views import shared_templates
from tests.contract.fuzzing import fuzz
from tests.hardening.kinds import KINDS, Kind

DEEP, DEEP_OBJECTS = b"[" * 200_000, b'{"a":' * 200_000
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 2**31, 10**9, 10**18, -(10**400), 0.5, math.nan, math.inf, -math.inf, 1e308),
    *("", "x", "../../x", "\x00", "\ud800", "a\n::stop-commands::x", "2999-01-01", "1/999999999", "x" * 10_000),
    *([], [[]], [None], ["x"] * 1000, {}, {"": None}, {"a": {"b": []}}),
)
JUNK = (b"", b"\xff\xfe", b"{", b"\x00" * 9, DEEP)


def tried(kind: Kind, damage: Callable[[Path], object], folder: Path) -> str:
    """Damage a real file and read it: the complaint, or nothing where it is taken."""
    path = kind.source(folder)
    damage(path)
    try:
        kind.read(path)
    except DsocrError as error:
        message = str(error)
        assert 0 < len(message) < 20_000
        return message
    return ""


def instead(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Put something else in a file's place."""

    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def holding(data: bytes) -> Callable[[Path], None]:
    return instead(lambda path: path.write_bytes(data))


@cache
def content(name: str) -> tuple[bytes, Any]:
    """Return a real file of a kind, and its value without a seal; None instead of a value that is no JSON."""
    data = KINDS[name].source(Path(mkdtemp(prefix="dsocr-fuzz-"))).read_bytes()
    try:
        value = json.loads(data)
    except ValueError:
        return data, None
    return data, {key: one for key, one in value.items() if key != "sha256"} if KINDS[name].sealed else value


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value in a JSON value, and to the first of each array."""
    yield path
    rows = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in rows:
        yield from places(inner, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    """Return the value with something else at a place, or without that place if it is ``...``."""
    if not path:
        return odd
    found = copy.copy(value)
    if path[1:] or odd is not ...:
        found[path[0]] = replaced(value[path[0]], path[1:], odd)
    else:
        del found[path[0]]
    return found


@st.composite
def damaged(draw: st.DrawFn, name: str) -> bytes:
    data, value = content(name)
    if value is None or not draw(st.integers(0, 4)):
        at, junk = draw(st.integers(0, min(len(data), 4000))), draw(st.sampled_from(JUNK))
        return data[:at] + junk + (data[at + len(junk) :] if draw(st.booleans()) else b"")
    place = draw(st.sampled_from([*places(value)]))
    odd = draw(st.sampled_from((..., *ODD) if place else ODD))
    found = replaced(value, place, "" if KINDS[name].sealed and odd == "\ud800" else odd)  # which is never written
    return seal(found) if KINDS[name].sealed and isinstance(found, dict) else json.dumps(found).encode() + b"\n"


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_are_read_or_refused_by_a_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(data: bytes) -> None:
        tried(KINDS[name], holding(data), Path(mkdtemp(dir=tmp_path)))
        capsys.readouterr()

    settings(fuzz, max_examples=max(20, fuzz.max_examples // 7))(given(damaged(name))(check))()


@pytest.mark.parametrize("name", KINDS)
def test_a_whole_file_is_read_and_what_is_none_ends_at_once(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ((b'"MATCH"', b'"x"'), (b'"tokenizer": "', b'"x": "'))
    others = [lambda path, one=one: path.write_bytes(path.read_bytes().replace(*one)) for one in words]
    for damage in (instead(os.mkfifo), instead(Path.mkdir), *map(holding, (DEEP, DEEP_OBJECTS, b"")), *others):
        tried(KINDS[name], damage, Path(mkdtemp(dir=tmp_path)))
    assert tried(KINDS[name], lambda path: None, tmp_path) == "" or name == "facts"  # recorded under another Pillow


HOSTILE: tuple[Any, ...] = (
    *(..., None, -1, math.nan, "x", "../../\ud800", "<b>\n# x\n| y |\n@z [a](http://b)", "9" * 5000, [], {}),
    {"a": {}},
)


@pytest.mark.dsocr_slow
@pytest.mark.parametrize("name", ["result", "night", "kept", "bench"])
def test_every_field_that_is_read_again_is_checked(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replace each value of a file: each is accepted or refused, and nothing is written elsewhere."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # hundreds of small files
    monkeypatch.setattr("pytest_dsocr.history.page.shared_templates", cache(shared_templates))
    _, value = content(name)
    source = KINDS[name].source(tmp_path)
    folder = tmp_path / "one" / "below"
    folder.mkdir(parents=True)
    faults, file = [], folder / source.name
    for place in [*places(value)][1:]:
        for odd in HOSTILE:
            file.write_text(json.dumps(replaced(value, place, odd)))
            try:
                KINDS[name].read(file)
            except DsocrError:
                pass
            except Exception as error:
                faults.append(f"{place} = {str(odd)[:20]!r}: {error!r}"[:300])
            capsys.readouterr()
            if [*folder.parent.iterdir()] != [folder]:
                faults.append(f"{place} = {odd!r} writes elsewhere")
    assert not faults, f"{len(faults)}:\n" + "\n".join(faults[:40])
