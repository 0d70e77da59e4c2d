"""Kinds of files that a user can pass: where a real one is, and the code that reads it."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from datetime import date
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

from msgspec import structs

from pytest_dsocr.adapters.command import options_of
from pytest_dsocr.cli.main import main
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.portable import VOCABULARY, _fit
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.engine.weights import INDEX, read_headers
from pytest_dsocr.history import page, record, scoreboard
from pytest_dsocr.history.bench import night_of_bench
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.named import make_cases
from pytest_dsocr.plugin.snapshots import _holds, differences_of_files
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
from tests.engine.written import write_synthetic
from tests.report.made import MATCH, SLOWER, case_payload, payload, result, run_payload
from tests.timing.made import PARITY, identity, measured

VENDOR = CHECKOUT / "golden/vendor"
RECORDED = VENDOR / "mini/cpu-float32-eager"
CASE = "figures_009-gundam-markdown"
TIMES = measured({name: [1.0, 2.0] for name in ("first_token", "decode", "page")}, {"tokens": 3})


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
    night = night_of_bench(path)
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
    made = {"origin": {"checkpoint_sha256": "0"}, "value": {"spans": [], "boxes": 3, "characters": 5}}
    assert [*differences_of_files(json.dumps(made).encode(), path.read_bytes(), tolerances("float32"))]


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
