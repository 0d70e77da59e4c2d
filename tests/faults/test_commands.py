"""The commands around the mistakes: what they show, and how suites are asked."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from pytest_dsocr.pages.page_list import shipped
from tests.checkout import CHECKOUT
from tests.faults import matrix
from tests.faults.__main__ import main
from tests.faults.all import FAULTS, HALVES
from tests.faults.asked_suites import failure
from tests.faults.gallery import make_gallery
from tests.faults.outcome import Outcome
from tests.faults.pool import pool
from tests.faults.show import command
from tests.faults.trial import try_fault


def test_the_list_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(FAULTS) > 200
    assert lines[0].startswith(next(iter(FAULTS)))


def test_the_gallery_shows_what_is_said_and_the_page(tmp_path: Path) -> None:
    index = make_gallery(["PRM-02", "IMG-09"], "figures_201", tmp_path)
    content = index.read_text(encoding="utf-8")
    assert "that BOS, id 0, is put in front" in content
    assert "the channels&#x27; order" in content
    pictures = re.findall(r'src="([^"]+)"', content)
    assert len(pictures) == 2
    for picture in pictures:
        assert (tmp_path / picture).is_file()


def test_a_half_is_tried_and_told_for_a_person_to_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HALVES, "open_half", {"NEW-024": HALVES["open_half"]["NEW-024"]})
    assert main(["held-out", "open_half", "--out", str(tmp_path / "new")]) == 0
    content = (tmp_path / "new" / "open_half.md").read_text(encoding="utf-8")
    assert "found: 1 of 1; of these the stage is right for 1" in content
    [row] = [line for line in content.splitlines() if line.startswith("| NEW-")]
    assert "| input_ids | figures_201 | right |  | the prompt's text" in row


def test_a_page_of_ones_own_is_shown_against_the_session_without_the_mistake(tmp_path: Path) -> None:
    page = next(one for one in shipped("dev-3") if one.stem == "figures_201")
    ran = subprocess.run(
        [*command("PRJ-W1", page, tmp_path), "--dsocr-max-new-tokens=4"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout
    assert "check           that CLIP's features stand before SAM's" in ran.stdout
    assert list((tmp_path / "pages").glob("*.jpg"))


def test_a_suite_that_fails_is_told_with_its_test_stage_and_hint() -> None:
    with pool() as processes:
        found = processes.submit(failure, FAULTS["IMG-W5"], ["suites/contract/test_pixels.py"]).result()
        nowhere = processes.submit(failure, FAULTS["IMG-W5"], ["suites/nowhere.py"])
        with pytest.raises(RuntimeError, match="ended with 4"):
            nowhere.result()
    assert found is not None
    assert (found.killed, found.stage_right, found.hint_right) == (True, True, True)
    assert found.first == "suites/contract/test_pixels.py::test_loading[exif]"


@pytest.mark.parametrize(("by", "found_by"), [("invoice_016", "invoice_016"), ("a page of then", "figures_201")])
def test_a_mistake_is_looked_for_where_it_was_found(by: str, found_by: str) -> None:
    found = try_fault("PRM-02", suites=False, before=Outcome("PRM-02", True, by, "input_ids"))
    assert (found.by, found.first, found.hint_right) == (found_by, "input_ids", True)


def test_a_run_that_was_ended_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = dict(list(FAULTS.items())[:3])
    tried: list[str] = []

    def trying(left: list[str], suites: bool) -> list[Outcome]:
        tried.extend(left)
        return [Outcome(name, True, "a page", "input_ids", True, "", True) for name in left]

    monkeypatch.setattr(matrix, "FAULTS", names)
    monkeypatch.setattr(matrix, "PARTS", tmp_path)
    monkeypatch.setattr(matrix, "MATRIX", tmp_path / "matrix.json")
    monkeypatch.setattr(matrix, "PAGE", tmp_path / "faults.md")
    monkeypatch.setattr(matrix, "_tried", trying)
    first, *others = names
    matrix._add(tmp_path / f"{matrix._state(True)}.jsonl", Outcome(first, False))
    outcomes = matrix.run_matrix([], suites=True)
    assert tried == others
    assert [one.killed for one in outcomes] == [False, True, True]
    assert [row["fault"] for row in json.loads((tmp_path / "matrix.json").read_text())] == list(names)
    assert not list(tmp_path.glob("*.jsonl"))
