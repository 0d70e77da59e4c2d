"""``dsocr diff`` on files that runs have written; ``dsocr faults``: the list, and one mistake on one's own page."""

import json
import subprocess
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.cli import faults
from pytest_dsocr.cli.main import main
from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.models import FAMILIES
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.plugin.option_values import level
from pytest_dsocr.report.file import mark_running, write_json
from tests.report.made import BAD, GOOD, new_result, night


def written(folder: Path, result: dict[str, Any]) -> str:
    folder.mkdir()
    return str(write_json(folder, result))


def test_its_status_and_its_markdown_say_what_became_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = written(tmp_path / "old", night(*GOOD)), written(tmp_path / "new", night(*BAD))
    markdown = tmp_path / "diff.md"
    assert main(["diff", old, str(tmp_path / "new"), f"--markdown={markdown}"]) == 1
    assert "became wrong    a, clip.page" in capsys.readouterr().out
    assert "became wrong    a, clip.page" in markdown.read_text(encoding="utf-8")
    assert main(["diff", new, old]) == 0
    assert main(["diff", old, old]) == 0


def test_what_is_unfinished_or_no_result_is_not_comparable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = written(tmp_path / "old", night(*GOOD))
    mark_running(tmp_path / "new", new_result().identity)
    assert main(["diff", old, str(tmp_path / "new")]) == 12
    assert "not finished" in capsys.readouterr().err
    assert main(["diff", old, str(tmp_path / "nowhere")]) == 12
    assert main(["diff", old, written(tmp_path / "damaged", {**night(*GOOD), "tests": [5]})]) == 12
    other = json.loads(Path(old).read_text(encoding="utf-8"))
    other["run"]["key"] = "another"
    assert main(["diff", old, written(tmp_path / "other", other)]) == 12
    assert "obstacle        the references' keys differ" in capsys.readouterr().out


def test_a_file_that_cannot_be_written_is_a_bad_command_line(tmp_path: Path) -> None:
    old = written(tmp_path / "old", night(*GOOD))
    assert main(["diff", old, old, f"--markdown={tmp_path}/no/such/folder.md"]) == 2


def asked(name: str | None, **options: object) -> Namespace:
    return Namespace(**{"id": name, "page": None, "out": Path("out"), "table": None, **options})


def test_the_list_has_a_line_for_each_with_its_numbers() -> None:
    lines = [*faults.run(asked(None))]
    assert {line.split()[0] for line in lines} == {name for family in FAMILIES.values() for name in mistakes(family)}
    [line] = [line for line in lines if line.startswith("clip.activation-erf ")]
    assert line.endswith("(CLP-01)")


def test_an_unknown_one_is_refused() -> None:
    with pytest.raises(DsocrError, match="dsocr faults lists them"):
        [*faults.run(asked("CLP-99"))]


def test_a_page_of_ones_own_is_shown_against_the_session_without_the_mistake(tmp_path: Path) -> None:
    page = next(one for one in shipped("dev-3") if one.stem == "figures_201")
    assert any("shows at" in line for line in faults.described("PRJ-W1"))
    ran = subprocess.run(
        [*faults.command("PRJ-W1", page, tmp_path), "--dsocr-max-new-tokens=4"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "SAM's features in front of CLIP's in front of the projector" in ran.stdout
    assert list((tmp_path / "pages").glob("*.jpg"))


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["comapre"], "compare"),
        (["diff", "a", "b", "--markdwn"], "--markdown"),
        (["run", "a.png", "--preset=gundan"], "gundam"),
        (["faults", "clip.activation-er"], "clip.activation-erf"),
    ],
)
def test_what_was_meant_is_named(words: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with suppress(SystemExit):
        assert main(words) == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


def test_a_session_is_not_compared_with_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--reference=session", f"--out={tmp_path}/out"]) == 2
    assert "compared with itself" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert level("l2") is level("L2")
