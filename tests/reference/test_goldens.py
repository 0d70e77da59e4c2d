"""Where goldens are looked for, and written: in the folder that one works in, then in the package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.pages.named import make_cases
from pytest_dsocr.reference import goldens
from pytest_dsocr.reference.goldens import anchors_file, golden_folder, recording_places, shipped_folder, snapshots_in
from pytest_dsocr.reference.opening import Wanted, open_recorded
from suites.contract.pages import write_page
from tests.reference.conftest import STAND_IN


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_without_a_folder_of_ones_own_they_are_the_shipped_ones() -> None:
    assert golden_folder() == shipped_folder()
    assert recording_places(golden_folder()) == [shipped_folder() / "vendor"]
    Path("golden").mkdir()
    assert golden_folder() == Path("golden").absolute(), "an empty one is there to be written to"
    assert snapshots_in(golden_folder()) == shipped_folder() / "snapshots"
    Path("golden", "pictures").mkdir()
    assert golden_folder() == shipped_folder(), "a folder of that name may be anybody's"


@pytest.mark.parametrize("part", ["vendor", "snapshots", "baselines"])
def test_ones_own_come_first_and_the_shipped_ones_behind(part: str) -> None:
    own = Path("golden", part).absolute()
    own.mkdir(parents=True)
    assert golden_folder() == own.parent
    recordings = [own] if part == "vendor" else []
    assert recording_places(golden_folder()) == [*recordings, shipped_folder() / "vendor"]
    assert snapshots_in(golden_folder()) == (own if part == "snapshots" else shipped_folder() / "snapshots")


def test_anchors_are_ones_own_or_the_shipped_ones() -> None:
    assert anchors_file() == shipped_folder() / "vendor" / "anchors.json"
    own = Path("golden", "vendor", "anchors.json")
    own.parent.mkdir(parents=True)
    own.touch()
    assert anchors_file() == own


def test_what_is_recorded_lies_where_a_run_looks_first(capsys: pytest.CaptureFixture[str]) -> None:
    """And pages that cannot be had are left out."""
    Path("pages", "it.png").mkdir(parents=True)
    Path("pages", "cut.png").touch()
    page = write_page("tiny", Path("pages"))
    record = ["vendor", "record", str(STAND_IN), "pages", "--env", sys.prefix, "--checkpoint", "synthetic:tiny"]
    assert main([*record, "--presets", "tiny", "--max-new-tokens", "2"]) == 10
    told = capsys.readouterr()
    assert told.err == "dsocr: left out 2 pages, as is said above; mend what is wrong with them\n"
    assert "left out    pages/it.png is a folder with the name of an image" in told.out
    assert "left out    pages/cut.png cannot be read as an image" in told.out
    assert "1 cases" in told.out
    assert golden_folder() == Path("golden").absolute()
    [case] = make_cases([page], ["markdown"], ["tiny"], 2).good
    reference = open_recorded(recording_places(golden_folder()), Wanted(resolve("synthetic:tiny")))
    assert reference.recording.folder == Path("golden/vendor/synthetic-tiny/cpu-float32-eager").absolute()
    assert reference.observe(case).case_id == "tiny-tiny-markdown"


@pytest.mark.parametrize(
    ("command", "option"), [(["record", "code", "dev-3", "--golden"], "--golden DIR"), (["inspect"], "--anchors")]
)
def test_the_installed_package_is_not_written_to(
    command: list[str],
    option: str,
    warm_environment: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    package = Path("package")
    monkeypatch.setattr(goldens, "PACKAGE_FOLDER", package.absolute())
    target = package / "golden" / "vendor"
    full = [*command, str(target)] if "record" in command else [*command, str(STAND_IN), "--write"]
    more = [] if "record" in command else ["--env", str(warm_environment), "--anchors", str(target / "anchors.json")]
    main(["vendor", *full, *more])
    assert f"in the installed package; name a folder of your own: {option}" in capsys.readouterr().err
    assert not package.exists()
