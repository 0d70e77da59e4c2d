"""Where goldens are looked for, and written: in the folder that one works in, then in the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.reference import goldens
from pytest_dsocr.reference.goldens import anchors_file, golden_folder, recording_places, shipped_folder, snapshots_in


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


def test_the_installed_package_is_not_written_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = Path("package")
    monkeypatch.setattr(goldens, "PACKAGE_FOLDER", package.absolute())
    main(["vendor", "record", "code", "dev-3", "--golden", str(package / "golden" / "vendor")])
    assert "in the installed package; name a folder of your own: --golden DIR" in capsys.readouterr().err
    assert not package.exists()
