"""Tests of ``dsocr doctor``: it names what is missing and how to get it; only what the run needs is a fault."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement

from pytest_dsocr.cli.main import main
from pytest_dsocr.doctor import inputs, machine
from pytest_dsocr.doctor.finding import ExaminedRun, Finding
from pytest_dsocr.doctor.machine import CHECKS
from pytest_dsocr.engine.places import MINI_FOLDER
from tests.reference.small_folder import MAIN, change, write_small_folder

needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@pytest.fixture(autouse=True)
def _by_itself(unset: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Unset the project's variables, and use an empty user cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def doctor(*arguments: str | Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit status, and the findings by check."""
    status = main(["doctor", *map(str, arguments), "--json=found.json"])
    reported = json.loads(Path("found.json").read_text(encoding="utf-8"))
    assert reported["passes"] == (status == 0)
    return status, {one["check"]: one for one in reported["findings"]}


def faults(found: dict[str, dict[str, Any]]) -> list[str]:
    return [name for name, one in found.items() if one["level"] == "fault"]


def test_a_machine_that_has_all_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = doctor()
    assert (status, faults(found)) == (0, [])
    assert {"python", "torch", "weights", "recordings", "pillow", "disk, out"} <= {
        name for name, one in found.items() if one["level"] == "ok"
    }
    assert all(one["todo"] or "`dsocr " in one["message"] for one in found.values() if one["level"] == "note")
    lines = capsys.readouterr().out.splitlines()
    notes = sum(one["level"] == "note" for one in found.values())
    assert re.fullmatch(rf"ready  .*\d ok, {notes} note{'' if notes == 1 else 's'}, 0 faults", lines[-1])
    assert all(len(line) <= 120 or "/" in line for line in lines), "a path is one word, however long"


@pytest.mark.parametrize(
    ("arguments", "check", "said"),
    [
        (["--checkpoint=nowhere"], "weights", "is no checkpoint; give mini"),
        (["--pages=none.pdf"], "pages", "there is no page none.pdf"),
        (["--attention=flash_attention_2"], "attention", "flash"),
        (["--checkpoint=synthetic:tiny"], "recordings", "holds no recording of synthetic-tiny/cpu-float32-eager"),
    ],
)
def test_what_a_run_needs_and_is_not_there_is_a_fault(arguments: list[str], check: str, said: str) -> None:
    status, found = doctor(*arguments)
    assert (status, found[check]["level"]) == (1, "fault")
    assert said in f"{found[check]['message']}; {found[check]['todo']}"
    assert not any("the check itself failed" in one["message"] for one in found.values())
    if check == "recordings":  # none is needed where the engine is the reference
        status, found = doctor(*arguments, "--reference=engine")
        assert (status, faults(found), found[check]["level"]) == (0, [], "note")


def test_a_missing_folder_is_a_fault_and_the_other_checks_go_on() -> None:
    status, found = doctor("--reference=nowhere", "--vendor-env=nowhere")
    assert (status, faults(found)) == (1, ["reference", "vendor env"])
    assert {"python", "torch", "weights", "pages", "recordings"} <= {*found}


def test_where_the_nearest_recording_serves_it_says_so() -> None:
    _, found = doctor("--dtype=bfloat16")
    assert found["recordings"]["level"] == "note"
    assert "nvidia-h200-bfloat16-eager" in found["recordings"]["message"]
    assert "none is of cpu-bfloat16-eager" in found["recordings"]["message"]


@needs_no_gpu
def test_a_gpu_that_is_not_there_is_reported_of_torch_and_of_nothing_else_that_follows() -> None:
    status, found = doctor("--device=cuda", "--reference=engine")
    assert (status, faults(found)) == (1, ["torch", "gpu"])
    assert "no GPU was found" in found["baselines"]["message"]


@needs_a_gpu
def test_each_gpu_is_reported_with_its_memory() -> None:
    _, found = doctor("--device=cuda", "--reference=engine")
    reported = [one["message"] for name, one in found.items() if name.startswith("cuda:")]
    assert len(reported) == torch.cuda.device_count()
    assert all("GiB free" in one for one in reported)
    assert found["driver"]["level"] in ("ok", "note")
    assert not any("the check itself failed" in one["message"] for one in found.values())


def test_damaged_weights_are_a_fault(tmp_path: Path) -> None:
    shutil.copytree(MINI_FOLDER, tmp_path / "mine")
    [weights, *_] = sorted((tmp_path / "mine").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-100])
    status, found = doctor("--checkpoint=mine")
    assert (status, faults(found)) == (1, ["weights", "recordings"])
    assert "is not a whole safetensors file" in found["weights"]["message"]
    assert found["recordings"]["message"] == inputs.UNREADABLE


def test_a_live_reference_needs_files_like_those_written_down_and_an_environment(tmp_path: Path) -> None:
    folder = write_small_folder(tmp_path / "vendor")
    status, found = doctor("--reference=vendor")
    assert (status, faults(found)) == (1, ["vendor", "vendor's env"])
    assert "anchors drifted: format_messages" in found["vendor"]["message"]
    assert found["vendor"]["todo"] == "see what that affects: dsocr watch-vendor vendor"
    change(folder, MAIN, "import json\n", "import json, no_such_module\n")
    found = doctor("--reference=vendor", f"--vendor-env={sys.prefix}")[1]
    assert "no_such_module" in found["vendor's env"]["message"]
    (folder / MAIN).unlink()
    lacking = doctor("--reference=vendor")[1]["vendor"]["message"]
    assert lacking.startswith("vendor lacks ")
    assert MAIN in lacking


def test_another_pillow_is_reported_with_the_one_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "resampling", lambda: "0123456789abcdef")
    status, found = doctor()
    assert (status, faults(found)) == (1, ["pillow"])
    assert found["pillow"]["todo"].startswith("pip install 'pillow==")
    assert doctor("--reference=engine")[0] == 0


def test_a_package_that_is_missing_or_too_old_is_named() -> None:
    assert machine._unmet(Requirement("numpy>=1")) == ""
    assert machine._unmet(Requirement("numpy>=999")).endswith(", and >=999 is needed")
    assert machine._unmet(Requirement("no-such-package")) == "no-such-package is not installed"
    assert machine._unmet(Requirement('no-such-package; extra == "gpu"')) == ""


def test_the_weights_in_memory_are_counted_in_the_dtype_of_the_run() -> None:
    wanted = ExaminedRun("mini", "cpu", "float32", "eager", None, None, (), Path(), Path())
    assert 40e6 < machine.wanted_bytes(wanted) == 2 * machine.wanted_bytes(replace(wanted, dtype="bfloat16")) < 60e6


def test_a_check_that_breaks_down_is_a_fault_as_is_a_full_disk_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_: ExaminedRun) -> Iterator[Finding]:
        raise OSError("the driver hangs")

    monkeypatch.setitem(CHECKS, "torch", broken)
    monkeypatch.setattr(machine, "FEWEST_GIB", 1e9)
    status, found = doctor()
    assert (status, faults(found)) == (1, ["torch", "disk, out", "disk, temporary", "disk, cache"])
    assert found["torch"]["message"] == "the check itself failed: OSError: the driver hangs"
    assert "make room" in found["disk, out"]["todo"]


def test_the_environment_counts_behind_the_command_line_and_a_bad_option_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DSOCR_CHECKPOINT", "nowhere")
    monkeypatch.setenv("DSOCR_PAGES", "dev-20\ndev-3")
    status, found = doctor()
    assert (status, found["pages"]["message"]) == (1, "20 pages can be read: dev-20, dev-3")
    assert doctor("--checkpoint=mini")[0] == 0
    capsys.readouterr()
    assert main(["doctor", "--dtype=int8"]) == 2
    assert capsys.readouterr().err.startswith("dsocr: --dsocr-dtype: 'int8' is not one of float32")


def test_a_torch_that_cannot_be_imported_is_a_finding_with_its_remedy() -> None:
    code = "import sys; sys.modules['torch'] = None; from pytest_dsocr.cli.main import main; sys.exit(main(['doctor']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("fault  torch")
    assert "install pytest-dsocr anew" in " ".join(done.stdout.split())
