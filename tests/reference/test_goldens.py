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


def test_ones_own_come_first_and_the_shipped_ones_behind() -> None:
    shipped = shipped_folder()
    assert (golden_folder(), anchors_file()) == (shipped, shipped / "vendor" / "anchors.json")
    Path("golden").mkdir()
    assert golden_folder() == Path("golden").absolute(), "an empty one is there to be written to"
    Path("golden", "pictures").mkdir()
    assert golden_folder() == shipped, "a folder of that name may be anybody's"
    for part in ("baselines", "snapshots", "vendor"):
        Path("golden", part).mkdir()
        assert golden_folder() == Path("golden").absolute()
        own = [golden_folder() / "vendor"] if part == "vendor" else []
        assert recording_places(golden_folder()) == [*own, shipped / "vendor"]
        assert snapshots_in(golden_folder()) == (shipped if part == "baselines" else golden_folder()) / "snapshots"
    Path("golden/vendor/anchors.json").touch()
    assert anchors_file() == Path("golden/vendor/anchors.json")


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


def test_the_installed_package_is_not_written_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = Path("package")
    monkeypatch.setattr(goldens, "PACKAGE_FOLDER", package.absolute())
    main(["vendor", "record", "code", "dev-3", "--golden", str(package / "golden" / "vendor")])
    assert "in the installed package; name a folder of your own: --golden DIR" in capsys.readouterr().err
    assert not package.exists()
