"""Nights as files: nothing is changed in the folder, what broke when is shown, and so is what flips."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs, to_builtins

from pytest_dsocr.cli.main import main
from pytest_dsocr.history import record
from pytest_dsocr.history.page import html, lines, streaks
from pytest_dsocr.history.record import Night, Timed, cells_of, stage_of
from pytest_dsocr.report.file import UNFINISHED, head
from pytest_dsocr.report.worker_report import Deselection
from pytest_dsocr.timing.run import PerfRun
from pytest_dsocr.timing.statistics import Judgement, TimingVerdict
from tests.report.made import BAD, GOOD, IDENTITY, LOST, SLOW, case_payload, night, payload, result, run_payload
from tests.timing.made import measured


def made(day: int, *tests: Any, commit: str = "", **changes: Any) -> Night:
    """Return the night of a run of these tests, at a commit of its own unless one is named."""
    date = f"2026-11-{day:02}T01:17:00+00:00"
    [found] = record.of_runs([("run", night(*tests, started=date, ended=date, commit=commit or f"{day:040x}"))])
    return replace(found, **changes)


def plan(text: str, **how: Any) -> list[Night]:
    """Nights from letters: ``.`` is right, ``X`` wrong, ``-`` a night that compared nothing."""
    results = {".": GOOD, "X": BAD, "-": GOOD}
    nights = [made(day, *results[letter], **how) for day, letter in enumerate(text, 1)]
    return [replace(one, cells={}) if letter == "-" else one for one, letter in zip(nights, text, strict=True)]


def test_a_run_says_what_was_compared_and_how_it_was_computed() -> None:
    assert (made(1, *GOOD).subject, made(1, *GOOD).setting) == ("engine", "mini/cpu-float32-eager")
    [without] = record.of_runs([("run", {**night(*GOOD), "run": None})])
    assert (without.subject, without.setting) == ("", "")
    assert "2026-11-22; last night 2026-11-22" in html([without], [])


@pytest.mark.parametrize(
    ("what", "stage"),
    [
        ("images_seq_mask", "tokenizer"),
        ("sam.page/3", "sam"),
        ("prefill/0", "prefill"),
        ("prefill_best", "prefill"),
        ("logits", "decode"),
        ("result.mmd", "postprocess"),
        ("perf/decode", "times"),
        ("something of a user's", "other"),
    ],
)
def test_a_comparison_is_of_a_stage(what: str, stage: str) -> None:
    assert stage_of(what) == stage


def test_a_cell_has_the_gravest_verdict() -> None:
    assert cells_of([night(*GOOD)]) == {"a": {"tokenizer": "M", "clip": "M"}}
    assert cells_of([night(*GOOD), night(*BAD)])["a"]["clip"] == "W"
    slower = night(*GOOD, ("failed", payload(SLOW)))
    assert cells_of([slower])[""] == {"times": "W"}
    assert cells_of([night(*GOOD, LOST)])["b"] == {"prefill": "I"}, "the machine's fault"


def test_a_folder_is_only_added_to_by_two_in_the_same_second_as_well(tmp_path: Path) -> None:
    first, again = made(1, *GOOD), made(1, *BAD)
    one, other = record.add(tmp_path, first), record.add(tmp_path / "below", again)
    assert [path.name[:29] for path in (one, other)] == ["20261101T011700-000000000000-"] * 2
    assert one.name != other.name
    nights, damaged = record.read(tmp_path)
    assert (sorted(nights, key=lambda night: night.word), damaged) == ([first, again], [])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("....", []),
        ("..XX", [(2, 3, None)]),
        ("..X.", [(2, 3, 4)]),
        ("XX..", [(None, 1, 3)]),
        (".-X-X-.", [(1, 3, 7)]),
        (".X.-X", [(3, 5, None), (1, 2, 3)]),
    ],
)
def test_the_first_bad_night_is_found(text: str, found: list[tuple[int | None, int, int | None]]) -> None:
    def day(one: Night | None) -> int | None:
        return None if one is None else int(one.started[8:10])

    assert [(day(one.good), day(one.first), day(one.fixed)) for one in streaks(plan(text))] == found


def test_cells_that_broke_together_are_one_streak() -> None:
    nights = plan(".X")
    nights[1] = replace(nights[1], cells={"a": {"clip": "W", "decode": "W"}, "b": {"decode": "W"}})
    nights[0] = replace(nights[0], cells={"a": {"clip": "M", "decode": "D"}, "b": {"decode": "M"}})
    [one] = streaks(nights)
    assert one.cells == (("a", "clip"), ("a", "decode"), ("b", "decode"))
    [shown] = [line for line in lines(nights, []) if line.startswith("still wrong")]
    assert "first bad 2026-11-02 (commit 000000000000): clip, decode of a, b; last right 2026-11-01" in shown


def test_nights_of_several_subjects_are_noticed() -> None:
    nights = plan("XX.")
    assert not any(line.startswith("noticed") for line in lines(nights, []))
    nights[2] = replace(nights[2], subject="other:Model")
    shown = " ".join(" ".join(lines(nights, [])).split())
    ours, other = (f"{night.subject} {night.setting}" for night in nights[1:])
    assert f"noticed several subjects or settings are one row: {ours}, {other}; a night of one can end a" in shown
    assert "was wrong" in shown


def test_the_page_shows_every_stage_and_runs_nothing() -> None:
    nights = plan("..XX", subject="<script>", flaky=["test_it"])
    nights[3] = replace(nights[3], cells={"b": {"clip": "M"}, **nights[3].cells})
    page = html(nights, ["<b>"])
    assert "<script" not in page
    assert "<b>" not in page.replace("<b>still", "").replace("<b>wrong", "").replace(": <b>", "")
    kinds = re.findall(r'<(?:td|i) class="(\w+)', page)
    assert kinds.count("passes") == kinds.count("wrong") == 2
    assert kinds.count("W") == 1 + 2, "the legend, and two nights"
    titles = re.findall(r'title="([^"]+)"', page)
    assert "2026-11-03 (commit 000000000000), clip: WRONG in 1 of 1 cases: a" in titles
    assert "2026-11-04 (commit 000000000000), clip: WRONG in 1 of 2 cases: a" in titles
    assert "still wrong" in page
    assert page.count("<code>test_it</code> passed only when it was run again") == 4
    same = html(plan("..XX", commit="f" * 40), [])
    assert (page.count(' commit"'), same.count(' commit"')) == (3 * (1 + 2), 0), "a dashed line where it is another"


SLOWER = Judgement("decode", TimingVerdict.SLOWER, 1.0, 2.0, 2.0, 1.9, 2.1, 0.05, 4, 4)


def timed(decode_ms: float, **identity: Any) -> dict[str, Any]:
    """Return the result of four rounds that are slower."""
    medians = {"first_token": 9.0, "decode": decode_ms, "page": 99.0}
    rounds = {name: [ms + k for k in range(4)] for name, ms in medians.items()}
    return PerfRun(measured(rounds, {}, **identity), (SLOWER,)).to_json()


def test_times_of_one_machine_and_setting_are_bars_and_never_mixed() -> None:
    nights = [made(day, *GOOD, times=[Timed.of(timed(ms))]) for day, ms in enumerate((20.0, 10.0, 40.0), 1)]
    nights += [made(4, *GOOD, times=[Timed.of(timed(1.0, setup={"dtype": "float16"}))])]
    shown = " ".join(" ".join(lines(nights, [])).split())
    last = r"times nvidia-h200, .* decode 41\.5 ms \(40\.8 ms to 42\.2 ms\) 2026-11-03 .*, SLOWER; first 21\.5 ms"
    assert re.search(last, shown)
    page = html(nights, [])
    bars = re.findall(r'<i class="SLOWER" style="height: ([\d.]+)px" title="([\d.]+) ms', page)
    assert bars == [("15.5", "21.5"), ("8.3", "11.5"), ("30.0", "41.5"), ("30.0", "2.5")]
    titles = [f"nvidia-h200, engine, mini, {dtype}" for dtype in ("bfloat16", "float16")]
    assert re.findall("<h2>Times: (.*), eager", page) == titles


def test_an_accepted_slow_down_stands_at_its_date_with_its_reason() -> None:
    test = {"nodeid": "test_stages.py::test_is_no_slower[decode]", "outcome": "xfailed", "reason": "known"}
    others = [{**test, "outcome": "passed"}, {**test, "nodeid": "test_boxes[a]"}]
    nights = [made(day, *GOOD, times=[Timed.of(timed(9.0), [*others, test][:n])]) for day, n in enumerate((2, 3, 3), 1)]
    why = f"slower since {nights[1].at}: known"
    shown = " ".join(" ".join(lines(nights, [])).split())
    assert re.findall("accepted decode .*?: known", shown) == [f"accepted decode {why}"]
    assert shown.count("SLOWER as accepted;") == shown.count("SLOWER accepted decode") == 1
    page = html(nights, [])
    assert (page.count('class="SLOWER accepted"'), page.count(f"<br>accepted: {why}")) == (2, 1)


def add(folder: Path, *runs: tuple[str, dict[str, Any]]) -> int:
    """Add the results of runs to the history below a folder, by one command."""
    for name, found in runs:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "dsocr.json").write_text(json.dumps(found))
    named = [f"--add={folder / name}" for name, _ in runs]
    return main(["history", str(folder / "nights"), *named, f"--html={folder / 'x.html'}"])


def test_results_are_added_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day, tests in ((1, GOOD), (2, BAD)):
        date = f"2026-11-{day:02}T01:17:00+00:00"
        assert add(tmp_path, ("run", night(*tests, started=date, ended=date, perf=timed(15.0)))) == 0
    shown = capsys.readouterr().out
    assert "was wrong" not in shown
    assert "still wrong" in shown
    assert shown.count("\ndecode ") == 2
    assert "<h2>Times" in (tmp_path / "x.html").read_text(encoding="utf-8")
    assert len([*(tmp_path / "nights").iterdir()]) == 2
    assert main(["history", str(tmp_path / "empty")]) == 2


RUN = night(*GOOD)["run"]
ABSENT = {"what": "baseline", "why": "none of this machine", "tests": 1, "allowed": True}
RUNNING = {**head(IDENTITY, "running"), "verdict": UNFINISHED, "passes": False}
LEFT = night(*GOOD)["left"]
LOSS = {
    "lost": {"characters": 0.0},
    "allowed": {"characters": 0.08},
    "origin": "the int8 budget by DSOCR_QUANTIZATION_BUDGET",
    "stages": {},
}


def passing(pages: Sequence[str] = (), loss: dict[str, Any] | None = None, **run: Any) -> dict[str, Any]:
    """Return the result of a run that compares the page ``a``, of these that it was to compare."""
    (_, first), (_, second) = GOOD
    sides: Any = {"case": case_payload("a", loss=loss), "run": run_payload(**run)}
    made = result(("passed", structs.replace(first, **sides)), ("passed", structs.replace(second, **sides)))
    made.left = Deselection(listed=[(page, f"{page}.png", "tiny", "free") for page in pages])
    found: dict[str, Any] = to_builtins(made.document)
    return found


OF_SHARD = passing(shard="1/2", given_by={"shard": "DSOCR_SHARD"})
LEFT_A_PAGE, ON_BUDGET = passing(pages="ab"), passing(loss=LOSS)


def shards(*of: str, pages: Sequence[str] = ("dev-3",)) -> dict[str, dict[str, Any]]:
    """Return passing results of parts of a run."""
    return {str(k): night(*GOOD, run={**RUN, "shard": one, "pages": [*pages]}) for k, one in enumerate(of)}


@pytest.mark.parametrize(
    ("runs", "words", "verdict"),
    [
        ({"pages": night(*GOOD), "perf": night(*GOOD, perf=timed(15.0))}, ["passes"], "passes"),
        ({"pages": night(*GOOD), "live": night(*BAD)}, ["wrong"], "live: "),
        ({"live": night(*BAD), "pages": night(*GOOD)}, ["wrong"], "live: "),
        ({"pages": night(*GOOD), "live": RUNNING}, ["machine"], f"live: {UNFINISHED}"),
        ({"live": RUNNING, "pages": night(*BAD)}, ["wrong"], "pages: "),
        (
            {"pages": night(*GOOD), "perf": night(*GOOD, missing=[ABSENT])},
            ["incomplete"],
            "perf: passes; missing: base",
        ),
        ({"pages": night(*GOOD, missing=[{**ABSENT, "what": "gpu"}])}, ["passes"], "passes"),
        ({"pages": night(*GOOD, verdict="passes within looser limits: text=1 (0)")}, ["passes"], "passes within loo"),
        ({"pages": OF_SHARD}, ["incomplete"], "passes, shard 1 of 2 by DSOCR_SHARD; missing shards: 2/2"),
        ({"pages": LEFT_A_PAGE}, ["incomplete"], "passes, 1 of 2 pages (b.png) not compared"),
        (
            {"pages": ON_BUDGET},
            ["passes"],
            "passes within the int8 budget by DSOCR_QUANTIZATION_BUDGET: characters 0 of 0.08",
        ),
        ({"pages": night(*GOOD, left={**LEFT, "not_compared": ["b"]})}, ["incomplete"], "passes"),
        ({"pages": night(*GOOD, left={**LEFT, "tests": 3})}, ["incomplete"], "passes"),
        (shards("1/4", "2/4", "3/4"), ["incomplete"], "missing shards: 4/4"),
        (shards("1/4", "1/4"), ["incomplete"], "missing shards: 2/4, 3/4, 4/4; repeated shards"),
        (shards("1/2", "2/2", "2/2"), ["incomplete"], "repeated shards: 2/2"),
        (shards("1/2", "2/3"), ["incomplete"], "missing shards: 2/2; missing shards: 1/3, 3/3"),
        (shards("2/2", "1/2"), ["passes"], "passes"),
        ({**shards("1/2", "2/2"), "live": night(*GOOD)}, ["passes"], "passes"),
        ({**shards("1/2"), "other": shards("2/2", pages=["b.png"])["0"]}, ["incomplete"], "missing shards"),
        ({**shards("1/2"), "other": shards("2/2", pages=["/elsewhere/dev-3"])["0"]}, ["passes"], "passes"),
        ({**shards("1/2"), "other": {**RUNNING}}, ["machine"], "other: not finished"),
        ({**shards("1/2"), "other": night(*BAD)}, ["wrong"], "other: "),
        ({"a": night(*GOOD), "b": night(*BAD, commit="f" * 40)}, ["passes", "wrong"], "passes"),
        ({"a": night(*GOOD), "b": night(*BAD, run={**RUN, "subject": "b"})}, ["passes", "wrong"], "passes"),
    ],
)
def test_runs_of_one_commit_and_setting_are_one_night_of_which_the_gravest_counts(
    runs: dict[str, dict[str, Any]], words: list[str], verdict: str, tmp_path: Path
) -> None:
    assert add(tmp_path, *runs.items()) == 0
    nights, damaged = record.read(tmp_path / "nights")
    assert (sorted(night.word for night in nights), damaged) == (words, [])
    [first] = [night for night in nights if night.word == words[0]]
    assert first.verdict.startswith(verdict)
    if len(words) == 1:
        assert {part["name"] for part in first.parts} == {*runs}
        assert first.cells["a"]["clip"] == ("W" if words == ["wrong"] else "M")
        assert first.subject == "engine"


def test_nothing_is_added_where_one_result_cannot_be_read(tmp_path: Path) -> None:
    assert add(tmp_path, ("good", night(*GOOD)), ("damaged", {})) == 2
    assert not (tmp_path / "nights").exists()


def test_every_verdict_on_a_time_but_same_has_a_colour_of_its_own() -> None:
    page = (Path(record.__file__).parent / "history.html.j2").read_text(encoding="utf-8")
    coloured = {*re.findall(r"\.bars \.([A-Z-]+) \{ background", page)}
    assert coloured == {*TimingVerdict} - {TimingVerdict.SAME, TimingVerdict.NOT_COMPARED}
