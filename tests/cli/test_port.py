"""``dsocr port``: what it runs, and what it says at each end."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from msgspec import structs

from pytest_dsocr.base.files import sha256
from pytest_dsocr.cli.main import main
from pytest_dsocr.plugin.options import OPTIONS
from pytest_dsocr.report.document import RunJson
from pytest_dsocr.report.file import write_json
from pytest_dsocr.subjects.loading import BY_ENGINE
from tests.report.made import WRONG
from tests.report.test_port import SHAPES, result

PORT = ("port", "--subject=my_ocr:MyOcr", "--explain=1")
Runs = Callable[..., list[Sequence[str]]]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    """Replace pytest by a list of results; return the list of its commands."""
    monkeypatch.chdir(tmp_path)
    for option in OPTIONS:
        monkeypatch.delenv(option.env, raising=False)

    monkeypatch.setattr("pytest_dsocr.adapters.dump_check.shapes", lambda *_: SHAPES)  # which take half a second

    def giving(*results: RunJson) -> list[Sequence[str]]:
        left, commands = [*results], []

        def status_of(
            command: Sequence[str], run_id: str, environment: Mapping[str, str], log: IO[bytes]
        ) -> tuple[int, str]:
            commands.append(command)
            out = next(word for word in command if word.startswith("--dsocr-out=")).partition("=")[2]
            return 0, sha256(write_json(Path(out), structs.replace(left.pop(0), id=run_id)).read_bytes())

        monkeypatch.setattr("pytest_dsocr.cli.port.status_of", status_of)
        return commands

    return giving


def words(command: Sequence[str], *names: str) -> list[str]:
    return [word for word in command if word.startswith(tuple(f"--dsocr-{name}" for name in names))]


def test_it_runs_no_more_than_up_to_the_first_stage_that_falls_short(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = runs(result(replace(WRONG, what="sam.page")))
    assert main(PORT) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["next", "sam:", "wrong"]
    assert shown[-1].split(maxsplit=1) == ["again", "dsocr port --subject=my_ocr:MyOcr --explain=1"]
    [command] = commands
    assert words(command, "pages", "max", "explain") == [
        "--dsocr-explain=1",
        "--dsocr-pages=receipt_086",
        "--dsocr-max-new-tokens=1",
    ]
    text = replace(WRONG, what="text")
    commands = runs(result(text), result(text, replace(WRONG, what="logits")))
    assert main([*PORT, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["stage"] == "decode"
    assert words(commands[1], "max") == []


def test_it_is_done_after_all_suites(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    commands = runs(result(), result(), result())
    assert main(PORT) == 0
    assert capsys.readouterr().out.startswith("done ")
    assert Path("dsocr-port/all/receipt.json").is_file()
    assert [any("contract" in word for word in command) for command in commands] == [False, False, True]


def test_a_port_that_uses_the_engine_is_not_done(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    runs(structs.replace(result(), notes=[BY_ENGINE]), result(), result())
    assert main(PORT) == 1
    assert BY_ENGINE in capsys.readouterr().out


def test_a_run_without_a_result_shows_the_end_of_its_output(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs()

    def dies(_: Sequence[str], __: str, ___: Mapping[str, str], log: Any) -> tuple[int, str]:
        log.write(b"ImportError: what is missing\n")
        return 1, ""

    monkeypatch.setattr("pytest_dsocr.cli.port.status_of", dies)
    assert main(PORT) != 0
    assert "ImportError: what is missing" in capsys.readouterr().err
