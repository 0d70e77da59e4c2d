"""Tests of finding the vendor's environment, and of requests that setup rejects before it writes a file."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.cli.main import main
from pytest_dsocr.reference.environment import (
    MARK,
    STAMP,
    EnvironmentPlan,
    Stamp,
    cache_folder,
    find_environment,
    plan_here,
)
from pytest_dsocr.reference.installation import is_made, set_up, write_stamp
from tests.reference.small_folder import write_small_folder

HERE = plan_here()
REUSED = plan_here(reuse_torch=True)
EXTRA = plan_here(extra=("flash-attn",))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DSOCR_VENDOR_ENV", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder()


OTHERS = (
    replace(HERE, python="3.11.0"),
    replace(HERE, pins=("torch==2.6.0", *HERE.pins[1:])),
    replace(HERE, torch_from=("/another/environment",)),
)


def test_the_one_last_set_up_of_these_versions_is_found(tmp_path: Path) -> None:
    plans = (HERE, REUSED, EXTRA, *OTHERS)
    assert len({plan.folder for plan in plans}) == len(plans)
    for plan in OTHERS:
        _pretend(plan, plan.folder)
    with pytest.raises(DsocrError, match=r"no environment .* with Python .*; create it with `dsocr vendor setup DIR`"):
        find_environment(None)
    for plan in (HERE, REUSED, EXTRA):
        _pretend(plan, plan.folder)
    for plan in OTHERS:
        os.utime(plan.folder / STAMP, (5e9, 5e9))
    os.utime(REUSED.folder / STAMP, (4e9, 4e9))
    assert find_environment(None) == REUSED.folder / "bin" / "python"
    assert is_made(REUSED, REUSED.folder)
    assert not is_made(HERE, REUSED.folder)
    for text in ("", "[]", '{"plan": {}, "versions": {}, "date": ""}'):
        (REUSED.folder / STAMP).write_text(text, encoding="utf-8")
        assert not is_made(REUSED, REUSED.folder)
    assert find_environment(None) != REUSED.folder / "bin" / "python"
    with pytest.raises(DsocrError, match=r"is incomplete; finish it with `dsocr vendor setup DIR --env"):
        find_environment(REUSED.folder)


def test_any_environment_of_the_user_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert find_environment(tmp_path / "venv") == python
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSOCR_VENDOR_ENV", "venv")
    assert find_environment(None) == python
    with pytest.raises(DsocrError, match=r"elsewhere is not a virtual environment: it has no bin/python"):
        find_environment(Path("elsewhere"))


def test_a_folder_of_somebody_else_s_is_left_as_it_is(tmp_path: Path) -> None:
    folder, name = tmp_path / "env", "pyvenv.cfg"
    folder.mkdir()
    (folder / name).touch()
    for place in (folder, folder / name):
        with pytest.raises(DsocrError, match="was not created by setup and is not changed"):
            list(set_up(HERE, place))
    assert [path.name for path in folder.iterdir()] == [name]


def test_bad_options_make_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    assert main(["vendor", "setup", str(write_small_folder(tmp_path / "vendor")), "--with=--pre"]) == 2
    assert "--with takes packages, not --pre" in capsys.readouterr().err
    assert not cache.exists()


def _pretend(plan: EnvironmentPlan, folder: Path) -> None:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").touch()
    (folder / MARK).touch()
    write_stamp(Stamp(plan, {}, "today"), folder)
