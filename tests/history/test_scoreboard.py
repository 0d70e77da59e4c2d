"""The table of implementations: what is kept of a run, the order of versions, and the page that it is put into."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.history.scoreboard import STAGES, ScoreboardEntry, cell, keep, read, tables
from pytest_dsocr.history.scoreboard_page import faults_of
from tests.report.made import BAD, GOOD, night

COMPARED = """input_ids/image MATCH 0, sam.page/3 DRIFT 2e-6, sam.page DRIFT 4e-6, images_ori WRONG inf,
    text NOT-COMPARED 0, sampled WRONG 9"""
FOUND = [
    {"what": what, "verdict": verdict, "error": float(error)}
    for what, verdict, error in map(str.split, COMPARED.split(","))
]
ONE = replace(
    ScoreboardEntry.of(night(*BAD, started="2026-11-22T20"), "it", "It | that", "it 0.9"),
    stages={stage: cell(stage, FOUND) for stage in STAGES},
)


def test_a_run_makes_a_row_of_each_table() -> None:
    of_run, of_stages = (table.splitlines()[2] for table in tables([ONE]))
    assert of_run == r"| It \| that | it | it 0.9 | L2 | 2026-11-22 | 1 of 2 |"
    assert of_stages == f"| it | it 0.9 | = | . | x 1 of 1 | . | =, 4e-06 |{' . |' * 7}"


def test_versions_stand_in_their_order_and_a_later_run_of_one_replaces_it(tmp_path: Path) -> None:
    for version in ("it 0.10", "commit 8f", "it 0.9", "it 0.9rc1", "it 0.10"):
        assert keep(tmp_path, replace(ONE, version=version)).stat().st_size < 2048
    assert [one.version for one in read(tmp_path)] == ["commit 8f", "it 0.9rc1", "it 0.9", "it 0.10"]
    assert read(tmp_path)[2] == ONE


HOSTILE = "# <b>x</b> | [y](http://z) `a`\n\n# B\r| www.c.d |\u2028*e* \ud800 \\"


@pytest.mark.parametrize("field", ["name", "title", "version"])
def test_what_a_user_calls_it_is_no_markup_and_the_page_does_not_grow(
    field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, run, empty = tmp_path / "page.md", tmp_path / "dsocr.json", tables([])
    page.write_text(f"# Page\n\n{empty[0]}\n{empty[1]}".rstrip())  # no newline at the end
    run.write_text(json.dumps(night(*GOOD)))
    called = {"name": "it", "title": "It", "version": "1", field: HOSTILE}
    sizes = set()
    for _ in range(3):
        add = ("--add", str(run), called["name"], called["version"], f"--title={called['title']}")
        assert main(["scoreboard", str(tmp_path / "kept"), *add, f"--into={page}"]) == 0
        sizes.add(page.stat().st_size)
    assert len(sizes) == 1
    title, *rows = filter(None, page.read_text().split("\n"))
    assert (title, [row.count(" | ") for row in rows]) == ("# Page", [5] * 3 + [13] * 3)
    for row in rows:
        unescaped = re.sub(r"\\.", "", row.replace(" | ", ""))[2:-2]
        assert not re.search(r"[<>\[\]`*#|]|://|www\.", unescaped)
        assert row.isprintable()


def test_two_names_that_look_alike_are_two_files(tmp_path: Path) -> None:
    called = [("a b", "1"), ("a/b", "1"), ("a", "b-1"), ("a-b", "1"), ("A-b", "1"), ("x" * 999, "1"), ("..", "/")]
    for name, version in called * 2:
        assert keep(tmp_path, replace(ONE, name=name, version=version)).parent == tmp_path
    assert sorted((one.name, one.version) for one in read(tmp_path)) == sorted(called)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scoreboard", str(tmp_path / "nowhere")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_the_command_keeps_a_result_and_puts_the_tables_in_the_place_of_those_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, page, run = tmp_path / "kept", tmp_path / "page.md", tmp_path / "dsocr.json"
    runs, stages = (table.partition("\n")[0] for table in tables([]))
    page.write_text(f"# Page\n\n{runs}\n| --- |\n| old |\n\nBetween.\n\n{stages}\nBehind | it.\n")
    keep(kept, ONE)
    for found, status, why in ({**night(*GOOD), "run": None}, 2, "gave its subject no case"), (night(*GOOD), 0, ""):
        run.write_text(json.dumps(found))
        assert main(["scoreboard", str(kept), f"--into={page}", "--add", str(run), "a", "1", "--title=A"]) == status
        said = capsys.readouterr()
        assert why in said.err
    first, second = tables(read(kept))
    assert said.out == f"{first}\n{second}"
    assert page.read_text() == f"# Page\n\n{first}\nBetween.\n\n{second}Behind | it.\n"
    assert {one.title: one.stages["CLIP"] for one in read(kept)} == {"It | that": ".", "A": "=, 7e-01"}
    assert main(["scoreboard", str(kept), "--add", str(run), "a", "2"]) == 0
    assert [(one.title, one.version) for one in read(kept)][:2] == [("A", "1"), ("A", "2")]
    assert main(["scoreboard", str(kept), f"--into={run}"]) == 2
    assert "has no table with the head" in capsys.readouterr().err


def test_the_page_shows_from_which_release_a_fault_is_there_and_links_receipts(tmp_path: Path) -> None:
    kept, run = tmp_path / "kept", tmp_path / "run"
    run.mkdir()
    (run / "dsocr.json").write_text(json.dumps(night(*BAD)))
    for version, clip in (
        ("it 1", "."),
        ("it 2", "="),
        ("it 3", "x 1 of 2, 7e-01"),
        ("it 4", "x 2 of 2"),
        ("it 5", "="),
    ):
        keep(kept, replace(ONE, version=version, stages={"CLIP": clip, "SAM": "x 1 of 1"}), run)
    sam, clip_found = faults_of(read(kept), {})
    assert (sam.first, sam.before, sam.fixed) == ("it 1", "", "")
    assert clip_found[2:6] == ("2 of 2", "it 3", "it 2", "it 5")
    (run / "receipt.md").write_text("a receipt")
    add = ("--add", str(run), "it", "it 4", "--copied=CLIP=other")
    assert main(["scoreboard", str(kept), *add, f"--html={tmp_path / 'a' / 'board.html'}"]) == 0
    [newest] = [one for one in read(kept) if one.version == "it 4"]
    assert (kept / "receipts" / f"{newest.file}.md").read_text() == "a receipt"
    page = (tmp_path / "a" / "board.html").read_text()
    assert f'href="../kept/receipts/{newest.file}.md"' in page
    assert "<td>other</td>" in page
    (run / "receipt.md").unlink()
    keep(kept, newest, run)
    assert [*(kept / "receipts").iterdir()] == []
    assert main(["scoreboard", str(kept), *add[:-1], "--copied=CLIPS=other"]) == 2
