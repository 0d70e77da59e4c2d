"""``dsocr vendor record`` from the command line to the recording, interrupted on the way; and where goldens are."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.reference import goldens
from pytest_dsocr.reference.goldens import anchors_file, golden_folder, recording_places, shipped_folder
from pytest_dsocr.reference.opening import WantedReference, open_recorded
from pytest_dsocr.reference.recording import Recording
from tests.processes import await_
from tests.reference.conftest import STAND_IN

HOME = Path("golden/vendor/synthetic-tiny/cpu-float32-eager")


@pytest.fixture(autouse=True)
def _started_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both the command and the reference's worker, in an empty folder."""
    monkeypatch.setenv("DSOCR_VENDOR_ENV", sys.prefix)
    monkeypatch.chdir(tmp_path)


def arguments(pages: Path, vendor: Path = STAND_IN) -> list[str]:
    return [
        *("vendor", "record", str(vendor), str(pages), str(pages / "tiny.png"), "--checkpoint", "synthetic:tiny"),
        *("--presets", "tiny", "small", "--max-new-tokens", "4"),
    ]


@pytest.mark.dsocr_slow
def test_pages_are_recorded_once_where_a_run_looks_first_and_then_are_there(
    pages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And pages that cannot be had are left out."""
    (pages / "it.png").mkdir()
    (pages / "cut.png").touch()
    assert main(arguments(pages)) == 10
    printed = capsys.readouterr()
    assert printed.err == "dsocr: left out 2 pages, as is said above; mend what is wrong with them\n"
    assert "it.png is a folder with the name of an image" in printed.out
    assert "cut.png cannot be read as an image" in printed.out
    cases = ["square-tiny-markdown", "square-small-markdown", "tiny-tiny-markdown", "tiny-small-markdown"]
    assert [line.split()[0] for line in printed.out.splitlines() if "4 tokens" in line] == cases
    assert printed.out.count(": 0 of 4 cases are there") == 1
    recording = open_recorded(recording_places(golden_folder()), WantedReference(resolve("synthetic:tiny"))).recording
    assert recording.folder == HOME.absolute()
    command = (
        "dsocr vendor record stand_in pages tiny.png --checkpoint synthetic:tiny --device cpu --dtype float32 "
        "--attention eager --presets tiny small --prompts markdown --max-new-tokens 4"
    )
    assert recording.provenance.command == command
    assert {len(case.observation.steps) for case in recording.cases.values()} == {4}
    assert recording.cases.keys() == {*cases}
    assert str(tmp_path) not in json.dumps(recording.provenance.to_json())

    assert main(arguments(pages)) == 10
    assert capsys.readouterr().out.count(": 4 of 4 cases are there") == 1


@pytest.mark.dsocr_slow
def test_an_interrupted_or_failing_recorder_says_what_it_kept_and_goes_on(
    pages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C while the reference hangs on the second page; then it is killed there."""
    vendor = Path(shutil.copytree(STAND_IN, tmp_path / "vendor"))
    command = arguments(pages, vendor)
    (vendor / "planted.json").write_text(json.dumps({"fault": "hang", "page": "tiny"}))
    with subprocess.Popen(
        [sys.executable, "-m", "pytest_dsocr", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        await_(lambda: (vendor / "planted.log").exists() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, err) == (130, "dsocr: interrupted\n")
    kept = "kept        2 of 4 cases; the same command continues from there"
    assert out.splitlines()[-1] == kept

    (vendor / "planted.json").write_text(json.dumps({"fault": "kill", "page": "tiny"}))
    assert main(command) == 10
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == kept
    assert "was killed by SIGKILL" in printed.err

    (vendor / "planted.json").unlink()
    assert main(command) == 0
    assert ": 2 of 4 cases are there\n" in capsys.readouterr().out
    assert len(Recording.open(HOME).cases) == 4


def test_ones_own_come_first_and_the_shipped_ones_behind() -> None:
    shipped = shipped_folder()
    assert (golden_folder(), anchors_file(DEEPSEEK_OCR)) == (shipped, shipped / "vendor" / "anchors.json")
    Path("golden").mkdir()
    assert golden_folder() == Path("golden").absolute(), "an empty one is there to be written to"
    Path("golden", "pictures").mkdir()
    assert golden_folder() == shipped, "a folder of that name may be anybody's"
    for part in ("baselines", "snapshots", "vendor"):
        Path("golden", part).mkdir()
        assert golden_folder() == Path("golden").absolute()
        own = [golden_folder() / "vendor"] if part == "vendor" else []
        assert recording_places(golden_folder()) == [*own, shipped / "vendor"]
        home = shipped if part == "baselines" else golden_folder()
        assert goldens.part_of(golden_folder(), goldens.SNAPSHOTS) == home / "snapshots"
    Path("golden/vendor/anchors.json").touch()
    assert anchors_file(DEEPSEEK_OCR) == Path("golden/vendor/anchors.json")


def test_the_installed_package_is_not_written_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = Path("package")
    monkeypatch.setattr(goldens, "PACKAGE_FOLDER", package.absolute())
    main(["vendor", "record", "code", "dev-3", "--golden", str(package / "golden" / "vendor")])
    assert "in the installed package, which is read-only; name your own folder: --golden DIR" in capsys.readouterr().err
    assert not package.exists()
