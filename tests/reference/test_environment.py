"""Where the vendor's environment is looked for, and what setup refuses before it makes anything."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.foundation.errors import DsocrError
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


def test_both_sides_share_what_decides_on_bits() -> None:
    assert [pin.partition("==")[0] for pin in HERE.pins[:3]] == ["torch", "pillow", "numpy"]
    assert not any("+" in pin for pin in HERE.pins)
    assert {"transformers==4.46.3", "tokenizers==0.20.3"} <= set(HERE.pins)


@pytest.mark.parametrize(
    "other",
    [
        REUSED,
        EXTRA,
        replace(HERE, python="3.11.0"),
        replace(HERE, pins=("torch==2.6.0", *HERE.pins[1:])),
    ],
)
def test_another_plan_has_another_folder(other: EnvironmentPlan) -> None:
    assert plan_here().folder == HERE.folder
    assert other.folder != HERE.folder


@pytest.mark.parametrize(("system", "below"), [("linux", ".cache"), ("darwin", "Library/Caches")])
def test_the_cache_is_where_the_system_has_it(monkeypatch: pytest.MonkeyPatch, system: str, below: str) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("sys.platform", system)
    assert cache_folder() == Path.home() / below / "pytest-dsocr"


def test_the_one_last_set_up_is_found() -> None:
    for plan in (HERE, REUSED, EXTRA):
        _pretend(plan, plan.folder)
    os.utime(REUSED.folder / STAMP, (4e9, 4e9))
    assert find_environment(None) == REUSED.folder / "bin" / "python"


@pytest.mark.parametrize(
    "plan",
    [
        replace(HERE, python="3.11.0"),
        replace(HERE, pins=("torch==2.6.0", *HERE.pins[1:])),
        replace(HERE, torch_from=("/another/environment",)),
    ],
)
def test_one_of_other_versions_is_not_found(plan: EnvironmentPlan) -> None:
    _pretend(plan, plan.folder)
    with pytest.raises(DsocrError, match=r"no environment .* with Python .*; make it with `dsocr vendor setup DIR`"):
        find_environment(None)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"plan": {}, "versions": {}, "date": ""}'])
def test_a_damaged_stamp_is_none(text: str) -> None:
    _pretend(HERE, HERE.folder)
    (HERE.folder / STAMP).write_text(text, encoding="utf-8")
    assert not is_made(HERE, HERE.folder)
    with pytest.raises(DsocrError, match="there is no environment"):
        find_environment(None)


def test_any_environment_of_the_user_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert find_environment(tmp_path / "venv") == python
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSOCR_VENDOR_ENV", "venv")
    assert find_environment(None) == python
    with pytest.raises(DsocrError, match=r"elsewhere is no virtual environment, for it has no bin/python"):
        find_environment(Path("elsewhere"))


def test_a_half_made_environment_is_not_used(tmp_path: Path) -> None:
    _pretend(HERE, tmp_path / "env")
    assert find_environment(tmp_path / "env")
    (tmp_path / "env" / STAMP).unlink()
    with pytest.raises(DsocrError, match=r"env is half made; finish it with `dsocr vendor setup DIR --env"):
        find_environment(tmp_path / "env")


@pytest.mark.parametrize("name", ["pyvenv.cfg", "thesis.tex"])
def test_a_folder_of_somebody_else_s_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "env"
    folder.mkdir()
    (folder / name).touch()
    for place in (folder, folder / name):
        with pytest.raises(DsocrError, match="was not made by setup and is left as it is"):
            list(set_up(HERE, place))
    assert [path.name for path in folder.iterdir()] == [name]


def test_without_ensurepip_the_advice_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho No module named ensurepip >&2\nexit 1\n", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    with pytest.raises(DsocrError, match=r"Python's venv failed; install your system's package .*\n  No module named"):
        list(set_up(HERE, tmp_path / "env"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--with=--pre",), "--with takes packages, not --pre; configure pip by its own variables"),
        (("--env", "."), "was not made by setup"),
    ],
)
def test_bad_options_make_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cache: Path,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["vendor", "setup", str(write_small_folder(tmp_path / "vendor")), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not cache.exists()


def _pretend(plan: EnvironmentPlan, folder: Path) -> None:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").touch()
    (folder / MARK).touch()
    write_stamp(Stamp(plan, {}, "today"), folder)
