"""The first bad commit of real repositories, judged by what a file holds there, and by runs of a subject."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.night.bisect import BAD, GOOD, SKIP, Found, Judged, Step, bisect, judged_by
from tests.night.conftest import commits, git
from tests.report.made import BAD as WRONG_CLIP
from tests.report.made import GOOD as RIGHT_CLIP
from tests.report.made import OPEN, night


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def history(text: str) -> list[str]:
    """A commit for each letter: ``.`` is good, ``X`` bad, ``?`` cannot be run."""
    return commits("state.txt", [(f"Commit {k}", f"{k}{letter}") for k, letter in enumerate(text)])


def judge(commit: str) -> Judged:
    letter = subprocess.run(["git", "show", f"{commit}:state.txt"], capture_output=True, text=True, check=True).stdout
    return Judged({".": GOOD, "X": BAD, "?": SKIP}[letter[-1]], f"it is {letter}")


def run(search: Generator[Step, None, Found]) -> Found:
    while True:
        try:
            next(search)
        except StopIteration as end:
            found: Found = end.value
            return found


@pytest.mark.parametrize("text", [".X", "..X", "....XXXX", "......X", ".XXXXXXX", "..?.XX?X", ".?.?.X?X"])
def test_the_first_bad_commit_is_found(text: str) -> None:
    made = history(text)
    found = run(bisect(made[0], "main", judge))
    assert found.first_bad == (made[text.index("X")],)
    assert found.why == f"it is {text.index('X')}X"
    assert f"Commit {text.index('X')}" in found.message
    assert len(found.steps) <= len(text)


def test_commits_that_cannot_be_run_may_leave_several() -> None:
    made = history("..??XX")
    found = run(bisect(made[1], made[-1], judge))
    assert {*found.first_bad} == {*made[2:5]}
    assert "could not be run" in "\n".join(found.lines())


def test_a_merge_is_looked_through() -> None:
    made = history("..")
    git("checkout", "-q", "-b", "side", made[0])
    for name in ("side", "bad"):
        Path("state.txt").write_text(f"{name}{'X' if name == 'bad' else '.'}", encoding="utf-8")
        git("commit", "-qam", f"On the side: {name}")
    planted = git("rev-parse", "HEAD")
    git("checkout", "-q", "main")
    git("merge", "-q", "-X", "theirs", "--no-edit", "side")
    assert run(bisect(made[0], "main", judge)).first_bad == (planted,)


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ((2, 3), "is not good, but bad: it is 2X"),
        ((0, 1), "is not bad, but good: it is 1."),
        ((4, 5), "is not good, but cannot be run"),
    ],
)
def test_ends_that_are_not_what_they_are_called_are_refused(ends: tuple[int, int], told: str) -> None:
    made = history("..XX?X")
    with pytest.raises(DsocrError, match=told):
        run(bisect(made[ends[0]], made[ends[1]], judge))


def test_the_checkout_is_left_alone_also_where_judging_fails() -> None:
    made = history("....XX")
    Path("state.txt").write_text("my own", encoding="utf-8")

    def broken(commit: str) -> Judged:
        if commit in (made[0], made[-1]):
            return judge(commit)
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError):
        run(bisect(made[0], made[-1], broken))
    run(bisect(made[0], made[-1], judge))
    assert git("rev-parse", "--abbrev-ref", "HEAD") == "main"
    assert git("status", "--porcelain") == "M state.txt"
    assert git("worktree", "list").count("\n") == 0
    assert git("for-each-ref", "refs/bisect") == ""


def test_a_name_that_is_no_commit_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    history(".X")
    assert main(["bisect", "main~9", "main"]) == 2
    assert "'main~9' is no commit of the repository here" in capsys.readouterr().err


def test_a_stage_or_a_subject_that_makes_no_sense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", "a", "b", "--stage=vission"]) == 2
    assert "--stage=vission is no stage; give one of tokenizer, sam" in capsys.readouterr().err
    assert main(["bisect", "a", "b", "--subject=http://localhost:1/v1"]) == 2
    assert "is no code of a commit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tests", "how", "word"),
    [
        (RIGHT_CLIP, {}, GOOD),
        (WRONG_CLIP, {}, BAD),
        (WRONG_CLIP, {"stage": "clip"}, BAD),
        (WRONG_CLIP, {"stage": "tokenizer"}, GOOD),
        (WRONG_CLIP, {"stage": "sam"}, SKIP),
        (WRONG_CLIP, {"case": "a"}, BAD),
        (WRONG_CLIP, {"case": "b"}, SKIP),
        (OPEN, {"stage": "clip"}, SKIP),
    ],
)
def test_a_result_judges_its_commit(tests: Any, how: dict[str, str], word: str) -> None:
    found = judged_by(night(*tests), **how)
    assert found.word == word
    assert found.why


def test_a_subject_that_cannot_be_loaded_says_nothing_of_a_commit() -> None:
    assert judged_by({**night(*WRONG_CLIP), "comparisons": 0}).word == SKIP
