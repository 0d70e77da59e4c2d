"""The vendor's files have changed: what drifted, which recordings are stale, which suites are affected."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.foundation.files import sha256
from pytest_dsocr.reference.anchors import CONTRACT, SYMBOLS, read_anchors
from pytest_dsocr.reference.drift import EVERY, STAGE_OF, SUITES, change_of, suites_of, to_json
from pytest_dsocr.reference.environment import FILES
from tests.checkout import CHECKOUT
from tests.recordings import FOLDER
from tests.reference.small_folder import DECODER, ENCODER, MAIN, body_of, change, write_small_folder

VENDOR = os.environ.get("DSOCR_VENDOR", "")


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files, their anchors in ``anchors.json``, and in ``golden`` a recording, FLOPs and facts made from them."""
    folder = write_small_folder(tmp_path / "vendor")
    monkeypatch.chdir(tmp_path)
    Path("anchors.json").write_text(to_json(read_anchors(folder), {}), encoding="utf-8")
    made = {"vendor_sha256": {name: sha256((folder / name).read_bytes()) for name in FILES}}
    (tmp_path / "golden/vendor/mine/cpu").mkdir(parents=True)
    for path, content in {
        "facts.json": {"provenance": made},
        "mine/flops-eager.json": {"made": [made]},
        "mine/cpu/manifest.json": {"provenance": made},
        "mine/cpu/case.json": {"any": "thing"},
    }.items():
        Path("golden/vendor", path).write_text(json.dumps(content), encoding="utf-8")
    return folder


def watched(vendor: Path) -> tuple[list[str], list[str], list[str]]:
    """What drifted, which suites that affects, and what is stale."""
    found = change_of(vendor, Path("anchors.json"), [Path("golden/vendor")])
    assert len(found.stale) + len(found.current) == 3
    stale = [path.relative_to("golden/vendor").as_posix() for path in (one.path for one in found.stale)]
    return [one.anchor for one in found.drifted], [*found.suites], stale


def test_every_anchor_affects_suites_that_there_are_and_every_suite_is_affected_by_some() -> None:
    assert {*SUITES} == {*CONTRACT}
    assert {*STAGE_OF} == {*SYMBOLS}
    there = {init.parent.name for init in (CHECKOUT / "suites").glob("*/__init__.py")}
    assert there == {*EVERY} == {suite for symbol in SYMBOLS for suite in suites_of(symbol)}
    assert suites_of("the rest of deepencoder.py") == EVERY


def test_a_changed_encoder_affects_the_suites_that_run_it_and_every_recording(vendor: Path) -> None:
    change(vendor, ENCODER, body_of("window_partition"), body_of("window_partition").replace("as it was", "changed"))
    drifted, suites, stale = watched(vendor)
    assert (drifted, suites) == (["window_partition"], ["parity", "checkpoint", "perf", "cost", "reference"])
    assert stale == ["facts.json", "mine/cpu/manifest.json", "mine/flops-eager.json"]


def test_a_comment_makes_recordings_stale_and_affects_no_suite(vendor: Path) -> None:
    change(vendor, MAIN, "import json\n", "import json  # of the standard library\n")
    drifted, suites, stale = watched(vendor)
    assert (drifted, suites, len(stale)) == ([], [], 3)


def test_what_is_in_no_anchor_may_affect_every_suite(vendor: Path) -> None:
    change(vendor, DECODER, "class DeepseekV2Model:", "import torch\n\n\nclass DeepseekV2Model:")
    assert watched(vendor)[:2] == ([f"the rest of {DECODER}"], [*EVERY])


def test_only_what_was_made_from_other_files_is_stale(vendor: Path) -> None:
    change(vendor, MAIN, "import json\n", "import json  # of the standard library\n")
    made = {"vendor_sha256": {name: sha256((vendor / name).read_bytes()) for name in FILES}}
    Path("golden/vendor/facts.json").write_text(json.dumps({"provenance": made}), encoding="utf-8")
    counted = Path("golden/vendor/mine/flops-eager.json")
    counted.write_text(json.dumps({"made": [*json.loads(counted.read_text())["made"], made]}), encoding="utf-8")
    assert watched(vendor)[2] == ["mine/cpu/manifest.json", "mine/flops-eager.json"]


def test_the_command_tells_it_and_writes_an_issue(vendor: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["watch-vendor", "vendor", "--anchors=anchors.json", "--golden=golden"]
    (Path("golden") / "baselines").mkdir()
    body = body_of("load_image")
    change(vendor, MAIN, body, body.replace("as it was", "changed"))
    assert main([*asked, "--markdown=issue.md"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1].strip(",") for line in lines if line.startswith("drifted ")] == ["load_image"]
    assert "suite contract  1 anchor: load_image" in lines
    assert f"stale           golden/vendor/mine/cpu/manifest.json: made from another {MAIN}" in lines
    issue = Path("issue.md").read_text(encoding="utf-8")
    assert issue.startswith("## The vendor's files have changed\n")
    assert "| `load_image` | " in issue
    assert " | contract, parity, checkpoint, reference |" in issue
    assert f"- `golden/vendor/mine/flops-eager.json`: made from another {MAIN}" in issue


def test_files_that_lack_one_and_damaged_recordings_are_told(vendor: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["watch-vendor", "vendor", "--anchors=anchors.json", "--golden=golden"]
    Path("golden/vendor/mine/cpu/manifest.json").write_text("{}", encoding="utf-8")
    assert main(asked) == 2
    assert "does not say what it was made from" in capsys.readouterr().err
    (vendor / ENCODER).unlink()
    assert main(asked) == 10
    assert f"lacks {ENCODER}" in capsys.readouterr().err


@pytest.mark.skipif(not VENDOR, reason="set DSOCR_VENDOR to a folder with the vendor's Python files")
def test_the_real_files_are_those_of_every_recording(tmp_path: Path) -> None:
    assert main(["watch-vendor", VENDOR]) == 0
    for name in FILES:
        shutil.copy(Path(VENDOR) / name, tmp_path)
    with (tmp_path / MAIN).open("a") as file:
        file.write("# one more line\n")
    found = change_of(tmp_path, FOLDER / "anchors.json", [FOLDER])
    assert (found.files, found.drifted, found.current) == ((MAIN,), (), ())
    assert len(found.stale) > 6
