"""Contents of the wheel, and equal collection in an installation and a checkout."""

import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from tests.checkout import CHECKOUT
from tests.processes import finished

HEAVY = ("torch", "numpy", "scipy", "transformers", "tokenizers", "safetensors")
UNASKED = ("perf", "cost")
"""Suites that run on request only."""
USUAL = ("cache", "checkpoint", "contract", "parity", "reference", *UNASKED)
PRODUCT = (*USUAL, "server")  # which is collected only where the subject is one
FOLDERS = [f"suites/{suite}" for suite in PRODUCT]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the unpacked wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    [built] = WheelBuilder(str(CHECKOUT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_source_distribution_holds_the_documentation(tmp_path: Path) -> None:
    [built] = SdistBuilder(str(CHECKOUT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(built) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    pages = {str(page.relative_to(CHECKOUT)) for page in (CHECKOUT / "docs").glob("*.md")}
    assert pages
    assert {*pages, "LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"} <= names


def test_the_wheel_holds_the_licence(wheel: Path) -> None:
    [licence] = wheel.glob("*.dist-info/licenses/LICENSE")
    assert licence.read_bytes() == (CHECKOUT / "LICENSE").read_bytes()


@pytest.mark.parametrize("part", [*(f"suites/{suite}" for suite in PRODUCT), "golden/vendor", "golden/snapshots"])
def test_suites_and_goldens_travel_byte_for_byte(wheel: Path, part: str) -> None:
    expected, actual = contents(CHECKOUT / part), contents(wheel / "pytest_dsocr" / part)
    assert expected
    assert [name for name in sorted({*expected, *actual}) if expected.get(name) != actual.get(name)] == []


def test_the_projects_own_tests_stay_at_home(wheel: Path) -> None:
    suites = {path.name for path in (wheel / "pytest_dsocr" / "suites").iterdir()} - {"__pycache__"}
    assert suites == {*PRODUCT, *(path.name for path in (CHECKOUT / "suites").glob("*.py"))}
    assert {path.name for path in wheel.iterdir()} == {"pytest_dsocr", *(path.name for path in wheel.glob("*-info"))}


def test_an_installation_collects_what_a_checkout_does(wheel: Path, tmp_path: Path) -> None:
    checkout = collected(CHECKOUT, *FOLDERS)
    assert {test.split("/")[1] for test in checkout} == {*USUAL}
    installed = collected(tmp_path, "--pyargs", "pytest_dsocr.suites", path=wheel)
    assert [f"suites/{test}" for test in installed] == [one for one in checkout if one.split("/")[1] not in UNASKED]


def test_a_clone_runs_the_projects_own_tests_as_well() -> None:
    """Collect without arguments; most folders of tests are ignored to save time."""
    folders = [path for path in (CHECKOUT / "tests").iterdir() if path.is_dir() and path.name != "pages"]
    found = collected(CHECKOUT, *(f"--ignore={path}" for path in folders))
    assert {test.split("/")[1] for test in found if test.startswith("suites/")} == {*USUAL} - {*UNASKED}
    assert [test for test in found if test.startswith("tests/pages/")]


@pytest.mark.parametrize("options", [[], ["--dsocr-subject=http://localhost:1/v1"]])
def test_collecting_the_suites_loads_nothing_heavy(options: list[str]) -> None:
    code = (
        "import sys, pytest;"
        f"print(int(pytest.main(['--collect-only', '-qq', '-p', 'no:cacheprovider', *{[*FOLDERS, *options]!r}])));"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = finished(sys.executable, "-c", code, cwd=CHECKOUT)
    assert done.stdout.splitlines()[-2:] == ["0", "[]"]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the contents of files that git does not ignore, by path."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    files = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
    return {name: content for name, content in files.items() if not name.startswith(".") and "/." not in name}


def collected(folder: Path, *arguments: str, path: Path | None = None) -> list[str]:
    """Return the ids of the tests that pytest collects from ``folder``."""
    how = ("--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:randomly")
    command = [sys.executable, "-m", "pytest", *how, *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    if path:
        environment["PYTHONPATH"] = str(path)
    done = finished(*command, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if "::" in line]
