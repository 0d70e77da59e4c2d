"""A user's repository with one page, stand-ins for both sides, and tests of its own."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import pytest_dsocr
from pytest_dsocr.reference.goldens import golden_folder

STANDIN = Path(__file__).with_name("standin.py")
CONFTEST = """
    import pytest
    import standin

    @pytest.fixture(scope="session")
    def dsocr_reference():
        return standin.{reference}()
"""
TEST_TEXT = """
    def test_text(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "text")
"""
TWO = TEST_TEXT + TEST_TEXT.replace("text", "boxes")
UNNEEDED = ("cacheprovider", "hypothesispytest", "randomly", "threadexception", "unraisableexception")
"""Slow plugins that no test here needs."""


@pytest.fixture(autouse=True)
def _without_the_unneeded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, unset: None) -> None:
    """Disable slow plugins in the environment, where no displayed command shows it, after ``pytester`` clears it."""
    if "pytester" in request.fixturenames:
        request.getfixturevalue("pytester")
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(f"-p no:{name}" for name in UNNEEDED))


class Repository:
    """User's repository with a page, and a subject named in the ini file."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        shutil.copy(STANDIN, pytester.path)
        Image.new("RGB", (32, 32)).save(pytester.path / "page.png")

    def settle(self, subject: str = "Reader", reference: str = "Reference", ini: str = "") -> None:
        """Name both sides, as classes of ``standin``."""
        self.pytester.makeconftest(CONFTEST.format(reference=reference))
        self.pytester.makeini(
            f"[pytest]\ndsocr_subject = standin:{subject}\ndsocr_pages = page.png\ndsocr_presets = tiny\n{ini}"
        )

    def pages(self, *names: str) -> list[str]:
        """Copy the page under other names, and return the options for it and its copies."""
        for name in names:
            shutil.copy("page.png", f"{name}.png")
        return [f"--dsocr-pages={name}.png" for name in ("page", *names)]

    def result(self, out: str = "out") -> dict[str, Any]:
        """Return the result that the last run wrote, whether it passed its checks or not."""
        found: dict[str, Any] = json.loads((self.pytester.path / out / "dsocr.json").read_text(encoding="utf-8"))
        return found

    def run(self, tests: str = TEST_TEXT, *arguments: str, apart: bool = False) -> pytest.RunResult:
        """Run a file of tests in this process, or in another one if ``apart``."""
        self.pytester.makepyfile(test_it=tests)
        run = self.pytester.runpytest_subprocess if apart else self.pytester.runpytest_inprocess
        return run(*arguments)


@pytest.fixture
def repository(pytester: pytest.Pytester) -> Repository:
    """Return a repository with sides that agree."""
    made = Repository(pytester)
    made.settle()
    return made


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the package hold the shipped goldens, as after ``pip install``."""
    (package := tmp_path / "site" / "pytest_dsocr").joinpath("golden", "vendor").mkdir(parents=True)
    monkeypatch.setattr("pytest_dsocr.reference.goldens.PACKAGE_FOLDER", package)


@pytest.fixture
def alone(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a pytest with this plugin only, in an empty folder and without options."""
    monkeypatch.delenv("DSOCR_EXPLAIN", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_dsocr.plugin.hooks")
    return pytester


VARYING = re.compile(r"(platform |rootdir: |configfile: |plugins: |cachedir: |benchmark: |\.+ |\[gw\d\])")


def rendered(result: pytest.RunResult) -> str:
    """Return a run's terminal output without parts that depend on the run or the machine."""
    lines = [line.rstrip() for line in result.outlines if not VARYING.match(line)]
    text = re.sub(r"(?m)^time  .*\n( {16}.*\n)*", "", "\n".join(lines))
    text = text.replace(str(Path.cwd()), "HERE")
    text = text.replace(str(golden_folder()), "GOLDEN")  # in the package where that is installed
    text = text.replace(str(pytest_dsocr.__path__[0]), "PACKAGE").replace(pytest_dsocr.__version__, "VERSION")
    return re.sub(r"=+ (.*?)(?: in [\d.]+s.*)? =+", r"== \1 ==", text)


def unwrapped(result: pytest.RunResult) -> str:
    """Return a run's output without line breaks."""
    return " ".join(result.stdout.str().split())
