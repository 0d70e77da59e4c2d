"""The vendor's environment, made by the real uv from tiny wheels, without a network."""

import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.cli.main import main
from pytest_dsocr.reference.environment import STAMP, EnvironmentPlan, find_environment, plan_here
from pytest_dsocr.reference.installation import is_made, prove, set_up
from tests.reference.small_folder import write_small_folder

LEAST = EnvironmentPlan(plan_here().python, ("torch", "tokenizers", "transformers"), (), ())
"""Plan with the packages that every setup checks at its end, in any version."""


@pytest.fixture(scope="module", autouse=True)
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make a folder of wheels the only source of uv, and use a separate user cache."""
    wheels = tmp_path_factory.mktemp("wheels")
    write_wheels_of(plan_here(), wheels)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DSOCR_VENDOR_ENV", raising=False)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("UV_CACHE_DIR", str(tmp_path_factory.mktemp("uv")))
        patch.setenv("UV_NO_CONFIG", "1")
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(wheels))
        yield wheels


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return ["vendor", "setup", str(write_small_folder(tmp_path_factory.mktemp("user") / "vendor"))]


@pytest.fixture(scope="module")
def steps(command: list[str]) -> list[str]:
    """Return the output of a setup in the user's cache."""
    with redirect_stdout(StringIO()) as out:
        assert main(command) == 0
    return out.getvalue().splitlines()


def test_setup_makes_an_environment_once_and_it_is_found(
    steps: list[str], command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert {f"  {pin.partition('==')[0]}" for pin in plan_here().pins} <= set(steps)
    python = find_environment(None)
    assert python == plan_here().folder / "bin" / "python"
    assert _said_by(python, "import tokenizers; print(tokenizers.__version__)") == "0.20.3"
    assert _said_by(python, "import importlib.util as u; print(u.find_spec('pytest'))") == "None"
    stamp = plan_here().folder / STAMP
    made = {path: path.lstat().st_ino for path in plan_here().folder.rglob("*.py")}
    os.utime(stamp, (1, 1))
    assert main(command) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert {path: path.lstat().st_ino for path in plan_here().folder.rglob("*.py")} == made
    assert stamp.stat().st_mtime > 1, "the one last set up is the one that is found"


def test_torch_is_reused_behind_the_environment_s_own_packages(
    tmp_path: Path, wheels: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    callers = plan_here(reuse_torch=True).torch_from
    before = _listing(callers)
    write_wheel(wheels, "needs-torch", "1.0", requires="torch")
    folder = tmp_path / "env"
    options = ["--env", str(folder), "--reuse-torch", "--with", "needs-torch"]
    assert main([*command, *options]) == 0, capsys.readouterr().err
    names = ("torch", "pytest", "tokenizers", "transformers", "numpy", "needs_torch")
    code = f"from importlib.util import find_spec\nprint(*(find_spec(name).origin for name in {names}))"
    files = _said_by(folder / "bin" / "python", code).split()
    assert [Path(file).is_relative_to(folder) for file in files] == [False, False, True, True, True, True]
    assert _listing(callers) == before


def test_a_setup_waits_for_another_and_finishes_what_that_left_when_killed(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    code = (
        "from pathlib import Path\nfrom pytest_dsocr.reference.environment import EnvironmentPlan\n"
        "from pytest_dsocr.reference.installation import set_up\n"
        f"for step in set_up({LEAST!r}, Path({str(folder)!r})): print(step, flush=True)"
    )
    steps = set_up(LEAST, folder)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        try:
            assert other.stdout.readline() == "a virtual environment\n"
            other.send_signal(signal.SIGSTOP)
            (folder / "half-written").touch()
            assert next(steps) == "waiting for another setup of the same folder"
        finally:
            other.kill()
    assert next(steps) == "a virtual environment"
    assert not (folder / "half-written").exists()
    assert not is_made(LEAST, folder)
    assert {"torch", "tokenizers", "transformers"} <= {*steps}
    assert is_made(LEAST, folder)


def test_uv_that_fails_is_quoted_with_advice_and_what_it_left_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(DsocrError) as raised:
        list(set_up(LEAST, tmp_path / "env"))
    message = str(raised.value)
    assert message.startswith("uv failed; name a package index with PIP_INDEX_URL, or a folder of wheels with PIP_FIND")
    assert "error: No solution found when resolving dependencies" in message
    with pytest.raises(DsocrError, match="is incomplete"):
        find_environment(tmp_path / "env")


@pytest.mark.usefixtures("steps")
def test_what_is_imported_in_the_end_must_be_what_was_installed(tmp_path: Path) -> None:
    made, elsewhere = plan_here().folder, tmp_path / "elsewhere"
    (elsewhere / "tokenizers").mkdir(parents=True)
    (elsewhere / "tokenizers" / "__init__.py").touch()
    [site] = made.glob("lib/python*/site-packages")
    for line, message in {
        f"import sys; sys.path.insert(0, '{elsewhere}')": r"has tokenizers from .*elsewhere",
        "import importlib.metadata as m; m.version = lambda _: '9'": r"has torch 9 .*, transformers 9 ",
        "import sys; sys.modules['transformers.models.llama'] = None": r"(?s)the new environment failed.*llama",
    }.items():
        (site / "impostor.pth").write_text(line, encoding="utf-8")
        with pytest.raises(DsocrError, match=message):
            prove(plan_here(), made)
    (site / "impostor.pth").unlink()
    assert prove(plan_here(), made)["transformers"] == "4.46.3"


CODE = {
    "transformers": {"transformers/models/llama/modeling_llama.py": "LlamaFlashAttention2 = type"},
    "numpy": {"numpy/__init__.py": "raise ModuleNotFoundError('a stand-in, without which torch can do')"},
}


def write_wheels_of(plan: EnvironmentPlan, folder: Path) -> None:
    """Write a tiny wheel for every package that the plan's pins name, from which pip does its real work."""
    for pin in plan.pins:
        name, _, version = pin.partition("==")
        write_wheel(folder, name, version or "1.0", code=CODE.get(name, {}))


def write_wheel(
    folder: Path, name: str, version: str, *, requires: str = "", code: Mapping[str, str] | None = None
) -> None:
    """Write a wheel that holds a module of its name, with whatever files of code besides."""
    folder.mkdir(exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{module}/__init__.py": f"__version__ = {version!r}\n",
        **(code or {}),
        f"{info}/METADATA": metadata + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


def _said_by(python: Path, code: str) -> str:
    return subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _listing(folders: tuple[str, ...]) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for folder in folders for path in Path(folder).iterdir() if path.suffix}
