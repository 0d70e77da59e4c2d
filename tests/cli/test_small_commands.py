"""``dsocr diff``, ``faults`` and ``demo``, and the help and hints of all commands."""

import json
import os
import sys
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.cli import faults
from pytest_dsocr.cli.compare import GROUPS, plugin
from pytest_dsocr.cli.main import AREAS, COMMANDS, main
from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.models import MODELS
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.plugin.option_values import level
from pytest_dsocr.plugin.options import OPTIONS
from pytest_dsocr.report.document import finished as decoded
from pytest_dsocr.report.file import INDEX_NAME, mark_running, read_result, write_json
from tests.processes import finished
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
    assert main(["diff", old, old, f"--markdown={tmp_path}/no/such/folder.md"]) == 2


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


def asked(name: str | None, **options: object) -> Namespace:
    return Namespace(**{"id": name, "page": None, "out": Path("out"), "table": None, **options})


def test_the_list_has_a_line_for_each_with_its_numbers() -> None:
    lines = [*faults.run(asked(None))]
    assert {line.split()[0] for line in lines} == {name for family in MODELS.values() for name in mistakes(family)}
    [line] = [line for line in lines if line.startswith("clip.activation-erf ")]
    assert line.endswith("(CLP-01)")


def test_an_unknown_one_is_refused() -> None:
    with pytest.raises(DsocrError, match="dsocr faults lists them"):
        [*faults.run(asked("CLP-99"))]


@pytest.mark.dsocr_slow
def test_a_page_of_ones_own_is_shown_against_the_engine_without_the_mistake(tmp_path: Path) -> None:
    page = next(one for one in shipped("dev-3") if one.stem == "figures_201")
    assert any("shows at" in line for line in faults.described("PRJ-W1"))
    ran = finished(*faults.command("PRJ-W1", page, tmp_path), "--dsocr-max-new-tokens=4")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "SAM's features before CLIP's in front of the projector" in ran.stdout
    assert list((tmp_path / "pages").glob("*.jpg"))


@pytest.mark.dsocr_slow
def test_the_demo_proves_its_mistake_and_shows_its_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DSOCR_EXPLAIN", raising=False)
    assert main(["demo", "--no-open", f"--out={tmp_path}"]) == 0
    assert str(tmp_path / INDEX_NAME) in capsys.readouterr().out
    result = decoded(read_result(tmp_path), tmp_path)
    [cause] = result.causes
    assert cause.proven
    assert result.cases[0].mistakes == ["clip.positions-turned"]
    [description] = [case.described for case in result.cases]
    assert description is not None
    diagonal = [row[k] for k, row in enumerate(description.places[0].rows)]
    assert min(diagonal) < min(row[k - 1] for k, row in enumerate(description.places[0].rows) if k)
    assert "Places of the error in clip.page/0" in (tmp_path / INDEX_NAME).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["comapre"], "compare"),
        (["diff", "a", "b", "--markdwn"], "--markdown"),
        (["run", "a.png", "--preset=gundan"], "gundam"),
        (["compare", "--referenc=engine"], "--reference"),
        (["bench", ".", ".", "--stag=decode"], "--stage"),
        (["faults", "clip.activation-er"], "clip.activation-erf"),
    ],
)
def test_what_was_meant_is_named(words: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with suppress(SystemExit):
        assert main(words) == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


def test_every_command_and_every_option_is_in_one_group_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    listed = [name for names in AREAS.values() for name in names]
    assert sorted(listed) == sorted({name.partition(" ")[0] for name in COMMANDS})
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(one.name for one in OPTIONS)
    for words, titles in (["--help"], AREAS), (["compare", "--help"], GROUPS):
        with pytest.raises(SystemExit):
            main(words)
        assert {line.rstrip(":") for line in capsys.readouterr().out.splitlines()} >= {*titles}
    assert level("l2") is level("L2")


@pytest.mark.parametrize(
    ("command", "place", "status"),
    [
        *(("compare", "", 4), ("compare", "environment", 4)),
        *(("pytest", "", 4), ("pytest", "environment", 2), ("pytest", "ini", 4)),
    ],
)
def test_an_engine_is_not_compared_with_itself(command: str, place: str, status: int, tmp_path: Path) -> None:
    """Refuse it in each place; plain pytest reads the environment only when it collects a test of ours."""
    (tmp_path / "test_it.py").write_text("def test_it(dsocr_report): pass\n", encoding="utf-8")
    ini = "[pytest]\ndsocr_reference = engine\n" if place == "ini" else "[pytest]\n"
    (tmp_path / "pytest.ini").write_text(ini, encoding="utf-8")
    start = ["pytest_dsocr", "compare"] if command == "compare" else ["pytest", f"-p{plugin()}"]
    given = [] if place else [f"--{'' if command == 'compare' else 'dsocr-'}reference=engine"]
    environment = {**os.environ, **({"DSOCR_REFERENCE": "engine"} if place == "environment" else {})}
    ran = finished(sys.executable, "-m", *start, *given, cwd=tmp_path, env=environment)
    assert ran.returncode == status, ran.stdout
    assert "compared with itself" in ran.stdout + ran.stderr
