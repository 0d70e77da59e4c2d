"""The table of other implementations: each row names a subject that can be had, and what is kept makes the page."""

import re
import shutil
import sys
import zipfile
from pathlib import Path
from venv import EnvBuilder

import pytest

from ci.implementations.__main__ import ROWS, expanded, main
from ci.implementations.versions import bisect
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.history.scoreboard import put_into, read, tables
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.subjects.loading import adapter_of, level_before_loading
from tests.checkout import CHECKOUT
from tests.markdown import text_of
from tests.recordings import FILES

FORK = "cpu-win-fork"
RESULTS, PAGE = CHECKOUT / "ci/implementations/results", "docs/implementations.md"
RELEASES = {
    "0.8": "from pytest_dsocr.explain.planted import clip_activation_none as subject",
    "0.9": "import absent",
    "0.10": "from pytest_dsocr.explain.planted import sam_activation_none as subject",
}
"""Releases of a package with their code. SAM is right in the first one."""
ROW = """
[planted]
title = "Planted"
version = "planted 0.8"
subject = "planted:subject"
options = "figures_201.png --checkpoint=synthetic:tiny --max-new-tokens=2 --reference=engine -- -k test_vision"
setup = "python -m pip install -q planted==0.8"
"""


def files(folder: Path, *names: str, text: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(text)


def test_a_rows_subject_is_of_the_tables_level(tmp_path: Path) -> None:
    files(program := tmp_path / "build" / "bin", "llama-mtmd-cli", text="#!/bin/sh\n")
    (program / "llama-mtmd-cli").chmod(0o755)
    files(tmp_path / "fork", *FILES)
    kept = {one.name: one for one in read(RESULTS)}
    assert kept.keys() <= ROWS.keys()
    for name, row in ROWS.items():
        subject = expanded(row.subject, {"WORK": str(tmp_path)})
        if adapter := adapter_of(subject):
            adapter.offers(subject)
        assert name not in kept or kept[name].level in str(level_before_loading(subject) or kept[name].level)


def test_the_page_has_the_tables_of_what_is_kept() -> None:
    assert put_into(text_of(PAGE), tables(read(RESULTS))) == text_of(PAGE)


def test_a_row_says_what_its_user_must_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [FORK, f"--work={tmp_path}/work"]
    for more, why in (
        ([], "--vendor=FOLDER"),
        (["--newest"], "of the commit 3d57463 and of no package"),
        ([f"--vendor={tmp_path}"], f"a clone of {ROWS[FORK].repository} at commit 3d57463; name its folder: --s"),
    ):
        files(tmp_path, *FILES)
        assert main([*command, *more]) == 2
        assert why in capsys.readouterr().err
    assert not (tmp_path / "work").exists()
    assert main(["absent"]) == 2
    assert f"there is no row absent; give one of {next(iter(ROWS))}, " in capsys.readouterr().err


def test_halving_finds_the_release_that_changed_a_stage() -> None:
    versions = [f"0.{k}" for k in range(30)]
    for k in range(1, 30):
        states = dict(zip(versions, "=" * k + "x" * 30, strict=False))
        assert re.fullmatch(
            rf"= up to 0\.{k - 1}, x from 0\.{k} on \([2-7] runs\)", bisect(versions, "0.0..0.29", states.get)
        )
    states = {version: state for version, state in zip(versions, "==  x x.", strict=False) if state != " "}
    assert bisect(versions, "0.0..0.7", states.get) == "= up to 0.1, x from 0.4 on; 0.2, 0.3 could not be run (6 runs)"
    assert bisect(["1", "2", "3"], "1..3", lambda _: "=") == "= in 1 and in 3: nothing to look for between them"
    with pytest.raises(DsocrError, match=r"^2 could not be run"):
        bisect(["1", "2"], "1..2", {"1": "="}.get)
    for ends in ("0.3..0.2", "0.3", "0.3..1.0"):
        with pytest.raises(DsocrError, match="is no range of its versions"):
            bisect(versions, ends, states.get)


@pytest.mark.dsocr_slow
@pytest.mark.usefixtures("unset")
def test_the_release_that_broke_a_stage_is_found_by_running_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for version, source in RELEASES.items():
        with zipfile.ZipFile(tmp_path / f"planted-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("planted.py", source)
            info = f"planted-{version}.dist-info"
            metadata = f"Metadata-Version: 2.1\nName: planted\nVersion: {version}\n"
            for name, text in {"METADATA": metadata, "WHEEL": "Wheel-Version: 1.0\n", "RECORD": ""}.items():
                wheel.writestr(f"{info}/{name}", text)
    EnvBuilder().create(env := tmp_path / "work/env")  # with all that is installed here
    [packages] = env.glob("lib/python*/site-packages")
    (packages / "here.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    shutil.copy(next(page for page in shipped("dev-3") if page.stem == "figures_201"), tmp_path)
    files(tmp_path, "rows.toml", text=ROW)
    files(env, "made")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    command = ["planted", "--rows=rows.toml", "--work=work", "--keep=kept", "--bisect=0.8..0.10", "--stage=SAM"]
    assert main(command) == 0
    *_, last = capfd.readouterr().out.splitlines()
    assert last == "SAM: = up to 0.8, x 5 of 5 from 0.10 on; 0.9 could not be run (3 runs)"
    kept = [(one.version, one.level, one.stages["SAM"].partition(",")[0]) for one in read(Path("kept"))]
    assert kept == [("planted 0.8", "L3", "="), ("planted 0.10", "L3", "x 5 of 5")]
