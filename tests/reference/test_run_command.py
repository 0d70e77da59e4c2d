"""``dsocr vendor run`` from the command line to the files: resumed, over pages that fail, and refused at once."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.foundation.files import sha256, unseal
from tests.recordings import FILES
from tests.reference.conftest import STAND_IN, home_names

MACHINE, BAD_INPUT = 10, 2
CASES = ["square-tiny-markdown", "tiny-tiny-markdown"]


@pytest.fixture(params=home_names())
def vendor(request: pytest.FixtureRequest, warm_environment: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in's files in this environment; the vendor's own in its environment, where both are named."""
    if request.param == "vendor":
        return Path(os.environ["DSOCR_VENDOR"])
    monkeypatch.setenv("DSOCR_VENDOR_ENV", str(warm_environment))
    return STAND_IN


def run(vendor: Path, pages: Path, *more: str) -> int:
    tokens = [] if any(word.startswith("--max-new-tokens") for word in more) else ["--max-new-tokens=4"]
    small = ["--checkpoint=synthetic:tiny", "--presets", "tiny", *tokens]
    return main(["vendor", "run", str(vendor), str(pages), *small, f"--out={pages.parent / 'out'}", *more])


def info(home: Path) -> dict[str, Any]:
    return unseal((home / "info.json").read_bytes())


def test_every_page_that_can_be_read_is_kept_and_not_read_again(
    vendor: Path, pages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pages / "torn.png").write_bytes((pages / "square.png").read_bytes()[:200])
    out = pages.parent / "out"
    out.touch()
    assert run(vendor, pages) == BAD_INPUT
    assert capsys.readouterr().out == "", "it is refused before anything is loaded"
    out.unlink()
    assert run(vendor, pages) == MACHINE
    assert "torn.png" in capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == CASES
    for case in CASES:
        kept = info(out / case)
        files = {path.relative_to(out / case).as_posix() for path in (out / case).rglob("*") if path.is_file()}
        assert files == {*kept["files"], "info.json"} >= {"result.mmd", "result_with_boxes.jpg"}
        assert kept["grid"] == [[1, 1]]
        assert len(kept["token_ids"]) == 4
        assert kept["shapes"]["images_ori"].startswith("bfloat16 [1, 3, ")
        hashes = {name: sha256((vendor / name).read_bytes()) for name in FILES}
        assert kept["provenance"]["vendor_sha256"] == hashes

    (pages / "torn.png").unlink()
    before = [(out / case / "info.json").stat().st_mtime_ns for case in CASES]
    (out / CASES[1] / "result.mmd").unlink()
    assert run(vendor, pages) == 0
    assert ": 1 of 2 are there\n" in capsys.readouterr().out
    after = [(out / case / "info.json").stat().st_mtime_ns for case in CASES]
    assert (after[0] == before[0], after[1] == before[1]) == (True, False), "what is whole is not read again"
    assert run(vendor, pages, "--max-new-tokens=5") == 0
    assert ": 0 of 2 are there\n" in capsys.readouterr().out


def test_a_page_that_fails_does_not_end_the_others(
    pages: Path, warm_environment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DSOCR_VENDOR_ENV", str(warm_environment))
    vendor, out = Path(shutil.copytree(STAND_IN, pages.parent / "vendor")), pages.parent / "out"
    (vendor / "planted.json").write_text(json.dumps({"fault": "memory", "page": "square"}))
    assert run(vendor, pages) == MACHINE
    assert f"failed      {CASES[0]}: " in capsys.readouterr().out
    assert [path.name for path in out.iterdir()] == CASES[1:], "and nothing half made is left"
    (vendor / "planted.json").unlink()
    assert run(vendor, pages) == 0
    assert ": 1 of 2 are there\n" in capsys.readouterr().out
