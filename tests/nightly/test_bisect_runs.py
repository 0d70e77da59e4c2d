"""The first bad commit of a repository with a subject: one that reads its pixels wrong, one that works too much."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.plugin.options import OPTIONS
from tests.nights.git_repository import commits, git

[PAGE] = (page for page in shipped("dev-3") if page.stem == "figures_201")  # the one soonest read
EXAMPLE = "from tests.subjects.examples.{} import {} as MyOcr\n# {}\n"
RIGHT, WRONG = ("staged", "Staged"), ("bilinear", "Bilinear")
WORK = """
from pytest_dsocr.engine.session import Session
from tests.perf.planted import {} as Planted


def engine(setup):
    return Planted(Session.from_checkpoint(setup.checkpoint))
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for option in OPTIONS:
        monkeypatch.delenv(option.env, raising=False)


def test_a_planted_wrong_stage_is_found_past_a_commit_that_cannot_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    made = commits(
        "my_ocr.py",
        [
            ("Begin", EXAMPLE.format(*RIGHT, 0)),
            ("Words", EXAMPLE.format(*RIGHT, 1)),
            ("Half of a change", "def MyOcr(:\n"),
            ("Resize faster", EXAMPLE.format(*WRONG, 3)),
            ("More words", EXAMPLE.format(*WRONG, 4)),
        ],
    )
    allowed = ["--may-miss=gpu", "--may-miss=vendor", "--may-miss=snapshot"]
    words = [str(PAGE), "--subject=my_ocr:MyOcr", *allowed, "--", "-k", "test_case"]
    status = main(["bisect", made[0], "main", *words])
    told = capsys.readouterr().out
    assert status == 12, told
    assert f"first bad       one of {made[2][:12]}, {made[3][:12]}" in told
    assert f"skip    {made[2][:12]}" in told

    git("commit", "-q", "--allow-empty", "-m", "Nothing")
    (Path.cwd() / "my_ocr.py").write_text(EXAMPLE.format(*RIGHT, 5), encoding="utf-8")
    git("commit", "-qam", "Mended")
    Path("my_ocr.py").write_text(EXAMPLE.format(*WRONG, 6), encoding="utf-8")
    git("commit", "-qam", "Resize faster, again\n\nFor it is faster.")
    planted = git("rev-parse", "HEAD")
    git("commit", "-q", "--allow-empty", "-m", "Nothing else")
    assert main(["bisect", "main~2", "main", str(PAGE), "--stage=tokenizer", *words[1:]]) == 0
    told = capsys.readouterr().out
    assert f"first bad       {planted}" in told
    assert "    For it is faster." in told
    assert "images_ori" in told or "images_crop" in told
    assert Path("dsocr-bisect", planted[:12], "dsocr.json").is_file()
    assert git("worktree", "list").count("\n") == 0


def test_a_subject_that_is_no_code_of_the_commit_is_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    commits("my_ocr.py", [("Begin", "1\n"), ("End", "2\n")])
    named = "--subject=tests.subjects.examples.one_method:OneMethod"
    assert main(["bisect", "main~1", "main", str(PAGE), named]) == 2
    assert "is no code of this commit, but of " in capsys.readouterr().err


def test_a_planted_needless_work_is_found_by_its_counts(capsys: pytest.CaptureFixture[str]) -> None:
    versions = ("SessionSubject", "SessionSubject", "VisionTwice", "VisionTwice")
    made = commits("my_ocr.py", [(f"Version {k}", WORK.format(name) + f"# {k}\n") for k, name in enumerate(versions)])
    small = ["--checkpoint=synthetic:tiny", "--preset=tiny", "--max-new-tokens=2", f"--page={PAGE}"]
    assert main(["bench", "--bisect", "--counts", made[0], "main", "--subject=my_ocr:engine", *small]) == 0
    told = capsys.readouterr().out
    assert f"first bad       {made[2]}" in told
    assert "which is worse" in told
