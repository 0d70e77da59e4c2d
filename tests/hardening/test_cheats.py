"""Attempts of a port to be called right without being right, in the loop of ``dsocr port``."""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from pytest_dsocr.adapters.command import options_of, run
from pytest_dsocr.adapters.process import RunningCommand
from pytest_dsocr.base.hiding import Hiding
from pytest_dsocr.cli.main import main
from pytest_dsocr.compare import case as compared
from pytest_dsocr.plugin.options import OPTIONS
from pytest_dsocr.reference.goldens import shipped_folder
from pytest_dsocr.report.file import CHANGED, FINISHED, RunIdentity, head, read_result, write_json
from pytest_dsocr.subjects.calls import NOT_HIDDEN, watching
from pytest_dsocr.subjects.isolation.subject import IsolatedSubject
from pytest_dsocr.subjects.protocol import Setup
from tests.checkout import CHECKOUT

IS_HIDDEN = Hiding([shipped_folder()]).is_in_force
RECORDING = next((shipped_folder() / "vendor/mini/cpu-float32-eager").glob("receipt_086*.safetensors"))
PORT = ("port", "--subject=tests.hardening.cheats:Cheat")
Attempt = Callable[..., dict[str, str]]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a kept answer, in a folder that is hidden."""
    file = tmp_path_factory.mktemp("answers") / "kept.safetensors"
    file.write_bytes(RECORDING.read_bytes())
    return file


@pytest.fixture(scope="module")
def attempt(kept: Path) -> Iterator[Attempt]:
    """Have an isolated subject make an attempt."""
    with watching([]) as watch, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSOCR_GOLDEN", str(kept.parent))
        watch.hidden = (shipped_folder(), kept.parent, kept.parent / "absent")
        subject: Any = IsolatedSubject("tests.hardening.cheats:Cheat", Setup(), 600)

        def made(name: str, argument: object = "") -> dict[str, str]:
            found: dict[str, str] = json.loads(
                subject.read(kept, prompt=f"{name} {argument}", preset=None, max_new_tokens=1)
            )
            return found

        yield made
        subject.close()
        assert watch.notes == ([] if IS_HIDDEN else [NOT_HIDDEN])


@pytest.mark.skipif(not IS_HIDDEN, reason="the system has no Landlock, which a run reports")
def test_its_process_cannot_read_recordings_and_kept_answers(attempt: Attempt, kept: Path) -> None:
    for hidden in (RECORDING, kept):
        found = attempt("goldens", hidden)
        assert (found["python"], found["program"], found["rust"] == "done") == ("PermissionError", "nothing", False)
    assert attempt("goldens", CHECKOUT / "pyproject.toml")["python"] == "done"
    assert not {"DSOCR_GOLDEN", "PYTEST_CURRENT_TEST"} & {*attempt("surroundings")}


@pytest.mark.skipif(not IS_HIDDEN, reason="the system has no Landlock, which a run reports")
def test_a_command_cannot_read_them_either(kept: Path) -> None:
    options = options_of(f"cli:sh -c 'cat {RECORDING} || cat {CHECKOUT}/tox.ini' {{page}}")
    with watching([]) as watch:
        watch.hidden = (shipped_folder(),)
        assert run(options, {"page": kept}, RunningCommand.output).startswith(b"[tox]")


@pytest.mark.skipif(not IS_HIDDEN, reason="the system has no Landlock, which a run reports")
def test_a_process_gains_no_rights_and_one_that_keeps_its_rights_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ran() -> tuple[int, str]:
        command = ["grep", "NoNewPrivs", "/proc/self/status"]
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=hiding.after(began), check=False)
        return done.returncode, done.stdout

    def began() -> None:
        (tmp_path / "began").touch()

    hiding = Hiding([tmp_path])
    assert ran() == (0, "NoNewPrivs:\t1\n")
    assert (tmp_path / "began").is_file()
    hiding.close()
    monkeypatch.setattr(hiding, "_rules", 1 << 20)
    assert ran() == (126, "")


def test_a_system_without_landlock_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_dsocr.base.hiding.LIBC", None)
    assert (Hiding([tmp_path]).is_in_force, Hiding([]).is_in_force) == (False, True)


def test_what_it_changes_of_the_tool_in_its_process_changes_nothing_here(attempt: Attempt) -> None:
    assert attempt("patch", f"{compared.__name__}:judge") == {"patched": "done"}
    assert callable(compared.judge)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[Sequence[str], Mapping[str, str]]]:
    """Note each run of pytest; instead of it a passing result is written, with a digest of something else."""
    commands: list[tuple[Sequence[str], Mapping[str, str]]] = []

    def status_of(command: Sequence[str], run_id: str, environment: Mapping[str, str], _: IO[bytes]) -> tuple[int, str]:
        commands.append((command, environment))
        forged = {**head(RunIdentity(run_id, "2026-11-21T04:00:00+00:00", None, ""), FINISHED), "passes": True}
        write_json(tmp_path / "dsocr-port" / "first-token", {**forged, "verdict": "passes"})
        return 0, "0" * 64

    monkeypatch.chdir(tmp_path)
    for option in OPTIONS:
        monkeypatch.delenv(option.env, raising=False)
    monkeypatch.setattr("pytest_dsocr.cli.port.status_of", status_of)
    return commands


def test_a_result_that_something_else_wrote_is_not_believed(
    started: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(PORT) != 0
    assert "done" not in capsys.readouterr().out
    assert read_result(tmp_path / "dsocr-port" / "first-token", unfinished=True)["status"] == CHANGED


@pytest.mark.parametrize(
    "word",
    ["--tolerances=seam=1", "--allow-missing=gpu", "--xfails=x", "--golden=x", "--level=L0", "--max-new-tokens=1"],
)
def test_no_option_changes_a_limit_or_leaves_something_out(word: str, started: list[Any]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*PORT, word])
    assert not started


@pytest.mark.parametrize("name", ["DSOCR_TOLERANCES", "DSOCR_GOLDEN", "DSOCR_ALLOW_MISSING", "DSOCR_KEPT_ANSWERS"])
def test_no_variable_does_so(
    name: str, started: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "1")
    assert main(PORT) == 2
    assert name in capsys.readouterr().err
    assert not started


@pytest.mark.parametrize("reference", ["recordings", "vendor"])
def test_answers_of_its_own_are_no_reference(reference: str, started: list[Any], tmp_path: Path) -> None:
    (tmp_path / reference).mkdir()
    assert main([*PORT, f"--reference={tmp_path / reference}"]) == 2
    assert not started


def test_pytest_reads_no_ini_file_conftest_or_plugin_of_its_own(
    started: list[tuple[Sequence[str], Mapping[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--dsocr-tolerances=seam=1")
    main(PORT)
    [(command, environment)] = started
    assert {"-c/dev/null", "--dsocr-isolate"} <= {*command}
    assert [word for word in command if word.startswith("--confcutdir=")] != []
    assert environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] == "1"
    assert "PYTEST_ADDOPTS" not in environment
