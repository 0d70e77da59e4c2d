"""Damaged files of every kind that a user can pass: each is read or refused with one sentence.

DSOCR_FUZZ_EXAMPLES=5000 pytest tests/hardening/test_fuzzed_files.py
"""

import copy
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import date
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from pytest_dsocr.adapters.command import options_of
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import seal, templates
from pytest_dsocr.cli.main import main
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.portable import VOCABULARY, _fit
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.engine.weights import INDEX, read_headers
from pytest_dsocr.history import page, record, scoreboard
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.named import make_cases
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.plugin.snapshots import GoldenSnapshots, _holds
from pytest_dsocr.plugin.xfails import read_ledger
from pytest_dsocr.reference.drift import drifts, read_json
from pytest_dsocr.reference.nearest import read_facts
from pytest_dsocr.reference.recorded_case import RecordedCase
from pytest_dsocr.reference.recording import Recording
from pytest_dsocr.report.difference import difference
from pytest_dsocr.report.difference_lines import lines
from pytest_dsocr.report.document import finished
from pytest_dsocr.report.file import read_result, write_json
from pytest_dsocr.timing.baseline import Baseline, find
from pytest_dsocr.timing.identity import title_of
from pytest_dsocr.timing.run import PerfRun, judge_run
from pytest_dsocr.timing.statistics import Judgement, TimingVerdict
from tests.checkout import CHECKOUT
from tests.contract.fuzzing import fuzz
from tests.engine.written import write_synthetic
from tests.report.made import MATCH, SLOWER, case_payload, payload, result, run_payload
from tests.timing.made import PARITY, identity, measured

VENDOR = CHECKOUT / "golden/vendor"
RECORDED = VENDOR / "mini/cpu-float32-eager"
CASE, PAGE = "figures_009-gundam-markdown", shipped("dev-3")[0]
TIMES = measured({name: [1.0, 2.0] for name in ("first_token", "decode", "page")}, {"tokens": 3})
DEEP, DEEP_OBJECTS = b"[" * 200_000, b'{"a":' * 200_000
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 2**31, 10**9, 10**18, -(10**400), 0.5, math.nan, math.inf, -math.inf, 1e308),
    *("", "x", "../../x", "\x00", "\ud800", "a\n::stop-commands::x", "2999-01-01", "1/999999999", "x" * 10_000),
    *([], [[]], [None], ["x"] * 1000, {}, {"": None}, {"a": {"b": []}}),
)
JUNK = (b"", b"\xff\xfe", b"{", b"\x00" * 9, DEEP)


class Kind(NamedTuple):
    """A kind of file, where a real one is, and what reads it."""

    source: Callable[[Path], Path]
    """Makes a real file in a folder."""
    read: Callable[[Path], Any]
    sealed: bool = False


def _copied(source: Path, name: str = "") -> Callable[[Path], Path]:
    return lambda folder: Path(shutil.copy(source, folder / (name or source.name)))


def _written(name: str, text: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_text(text)
        return folder / name

    return make


def _result(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    made = result(("passed", payload(MATCH, case=case_payload("a", MATCH), run=run_payload())), SLOWER)
    judgement = Judgement("decode", TimingVerdict.SAME, 10.0, 10.0, 1.0, 0.99, 1.01, 0.05, 24, 24)
    perf = {**PerfRun(TIMES, (judgement,)).to_json(), "baseline": {"made": "2026-11-01", "commit": ""}}
    return write_json(folder, structs.replace(made.document, perf=perf))


def _read_result(path: Path) -> None:
    found = read_result(path)
    decoded = finished(found, path)
    assert [*lines(difference(decoded, decoded), decoded, decoded)]
    for night in record.of_runs([("run", found)]):
        assert [*page.lines([record.NIGHTS.read(record.add(path.parent / "nights", night))], [])]
    scoreboard.KEPT.read(scoreboard.keep(path.parent / "kept", scoreboard.ScoreboardEntry.of(found, "it", "It", "1")))


def _night(folder: Path) -> Path:
    [made] = record.of_runs([("run", read_result(_result(folder)))])
    return record.add(folder, made)


def _read_kept(path: Path) -> None:
    [one] = scoreboard.read(path.parent)
    again = scoreboard.keep(path.parent / "again", one)
    assert scoreboard.KEPT.read(again) == one
    made = scoreboard.tables([one])
    blank = scoreboard.put_into("\n".join(scoreboard.tables([])), made)
    assert scoreboard.put_into(blank, made) == blank
    assert [len(table.splitlines()) for table in made] == [3, 3]


def _kept(folder: Path) -> Path:
    return scoreboard.keep(
        folder, scoreboard.ScoreboardEntry.of(read_result(_result(folder / "run")), "it", "It", "it 1.0")
    )


def _bench(folder: Path) -> Path:
    head = {"started": "2026-11-22T04:00:00+00:00", "verdict": "slower", "status": 1, "accepted": {"decode": "known"}}
    judgement = Judgement("decode", TimingVerdict.SLOWER, 10.0, 20.0, 2.0, 1.9, 2.1, 0.05, 24, 24).to_json()
    path = folder / "bench.json"
    path.write_text(json.dumps({**head, "b": asdict(TIMES), "judgements": [judgement]}))
    return path


def _read_bench(path: Path) -> None:
    night = record.of_bench(record.read_bench(path))
    assert page.html([record.NIGHTS.read(record.add(path.parent / "nights", night))], [])


def _show(path: Path) -> None:
    assert main(["history", str(path.parent), f"--html={path.parent}/x.html"]) in (0, 2)


def _find_baseline(path: Path) -> None:
    found = find([path.parents[1]], identity(), 1e6)
    assert title_of(found.identity)
    judge_run(found, TIMES, {}, 1, 1)


def _among(source: Path, folder: Path, name: str) -> Path:
    """Link a folder's files, and copy the one of this name."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.name != name:
            (folder / file.name).symlink_to(file)
    return Path(shutil.copy(source / name, folder / name))


def _snapshot(path: Path) -> None:
    if _holds(path.parent, "0") or not path.is_file():
        return
    own = type("Own", (GoldenSnapshots,), {"origin": {"checkpoint_sha256": "0"}, "limits": tolerances("float32")})
    actual = json.dumps({"value": {"spans": [], "boxes": 3, "characters": 5}}).encode()
    assert [*object.__new__(own)._differences(actual, path.read_bytes())]


@cache
def _synthetic() -> Path:
    folder = Path(mkdtemp(prefix="dsocr-fuzz-"))
    write_synthetic("tiny", folder)
    return folder


def _portable(path: Path) -> None:
    _fit(VOCABULARY.read(path), 600)


def _in(name: str) -> Callable[[Path], Path]:
    return lambda folder: _among(_synthetic(), folder, name)


KINDS: dict[str, Kind] = {
    "result": Kind(_result, _read_result),
    "night": Kind(_night, _show),
    "kept": Kind(_kept, _read_kept),
    "bench": Kind(_bench, _read_bench),
    "baseline": Kind(
        Baseline(**vars(TIMES), parity=PARITY, made=date(2026, 11, 1), command="", commit=None).write,
        _find_baseline,
        sealed=True,
    ),
    "manifest": Kind(
        lambda folder: _among(RECORDED, folder / "mini" / RECORDED.name, "manifest.json"),
        lambda path: Recording.open(path.parent),
        sealed=True,
    ),
    "case": Kind(lambda folder: _among(RECORDED, folder, f"{CASE}.json"), RecordedCase.read, sealed=True),
    "facts": Kind(_copied(VENDOR / "inputs-pillow-12.json"), lambda path: read_facts(path.parent, "inputs")),
    "snapshot": Kind(
        _copied(next((CHECKOUT / "golden/snapshots").rglob("*.json")), "snapshot.json"), _snapshot, sealed=True
    ),
    "config": Kind(_in("config.json"), lambda path: Engine.from_checkpoint(str(path.parent))),
    "index": Kind(_in(INDEX), lambda path: read_headers(path.parent)),
    "tokenizer": Kind(_in("tokenizer.json"), lambda path: Tokenizer.from_folder(path.parent).encode("a")),
    "export": Kind(_in("tokenizer.json"), _portable),
    "anchors": Kind(
        _copied(VENDOR / "anchors.json"), lambda path: drifts(read_json(path), read_json(VENDOR / "anchors.json"))
    ),
    "ledger": Kind(
        _written("known.txt", "a.py::test_b  # until 2027-01-31: a reason\n"), lambda path: read_ledger(path).over()
    ),
    "pages": Kind(
        _written("pages.lst", "a.png\n# a\nb.png\n"),
        lambda path: make_cases([path], ["free"], ["tiny"], family=DEEPSEEK_OCR),
    ),
    "adapter": Kind(
        _written("own.toml", 'command = "cat {page}"\npresets = ["tiny"]\n'), lambda path: options_of(f"cli:{path}")
    ),
}


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
    """A real file of a kind, and what it holds; None of what is no JSON."""
    data = KINDS[name].source(Path(mkdtemp(prefix="dsocr-fuzz-"))).read_bytes()
    try:
        return data, json.loads(data)
    except ValueError:
        return data, None


def changed(draw: st.DrawFn, value: Any, odd: Sequence[Any]) -> Any:
    """The value with something odd at a place in it, or without what is there."""
    places = [*value] if isinstance(value, dict) else [*range(len(value[:3]))] if isinstance(value, list) else []
    if not places or not draw(st.integers(0, 3)):
        return draw(st.sampled_from(odd))
    place, found = draw(st.sampled_from(places)), copy.copy(value)
    if (what := draw(st.integers(0, 6))) > 1:
        found[place] = changed(draw, value[place], odd)
    else:
        taken = found.pop(place)
        if what and isinstance(found, dict):
            found["x"] = taken
    return found


@st.composite
def damaged(draw: st.DrawFn, name: str) -> bytes:
    data, value = content(name)
    if value is None or not draw(st.integers(0, 4)):
        at, junk = draw(st.integers(0, min(len(data), 4000))), draw(st.sampled_from(JUNK))
        return data[:at] + junk + (data[at + len(junk) :] if draw(st.booleans()) else b"")
    if not KINDS[name].sealed:
        return json.dumps(changed(draw, value, ODD)).encode() + b"\n"
    own = {key: one for key, one in value.items() if key != "sha256"}
    found = changed(draw, own, [one for one in ODD if one != "\ud800"])  # which is never written
    return seal(found) if isinstance(found, dict) else json.dumps(found).encode()


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


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value in a JSON value, and to the first of each array."""
    yield path
    rows = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in rows:
        yield from places(inner, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    """The value with something else at a place; nothing there where that is ``...``."""
    if not path:
        return odd
    found = copy.copy(value)
    if path[1:] or odd is not ...:
        found[path[0]] = replaced(value[path[0]], path[1:], odd)
    else:
        del found[path[0]]
    return found


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
    monkeypatch.setattr("pytest_dsocr.history.page.templates", cache(templates))
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
