"""Ways to die, lie or stop short: none ends in *passes* or in status 0, whatever result an earlier run has left.

Each is a real run in a process of its own, beside the finished result of a run that passed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from textwrap import dedent

import pytest
from PIL import Image

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.report.file import FINISHED, RunIdentity, head, read_result, write_json
from tests.plugin import planted
from tests.plugin.conftest import CONFTEST, TEST_TEXT, Repository

PAGES = ("first", planted.PAGE, "third")
MOMENTS = ("import", "make", "read", "close")
WORKERS: Mapping[str, Sequence[str]] = {"alone": (), "on two workers": ("-p", "xdist", "-n", "2")}
OF_A_KIND: Mapping[str, Sequence[str]] = {
    "SIGKILL": ("SIGTERM", "SIGSEGV", "SIGABRT"),
    "SIGINT": (),
    "_exit(0)": ("_exit(1)",),
    "pytest.exit": (),
}
"""Ways of which one does to a run what the others do: it is gone, interrupted, gone with a status, or leaves."""
DEATHS = [
    *((way, moment, "alone") for way in OF_A_KIND for moment in MOMENTS),
    *((way, "read", "alone") for others in OF_A_KIND.values() for way in others),
    *((way, moment, "on two workers") for way, moment in zip(OF_A_KIND, MOMENTS, strict=True)),
    *(("_exit(0)", moment, "on two workers") for moment in ("make", "close")),
    ("pytest.exit", "read", "on two workers"),
]
"""One of a kind at every moment; of a worker, whose end its controller sees alike, every kind and every moment."""
PASSED = RunIdentity("0" * 32, "2026-11-21T04:00:00+00:00", None, "pytest")

STOPPED = """
SESSIONS = []
def pytest_sessionstart(session): SESSIONS.append(session)
def pytest_runtest_logfinish(nodeid): SESSIONS[0].shouldstop = "enough"
"""
LIES: Mapping[str, tuple[str, Sequence[str]]] = {
    "another plugin says 0": (
        """
        @pytest.hookimpl(trylast=True)
        def pytest_sessionfinish(session): session.exitstatus = 0
        """,
        ("--dsocr-subject=standin:Misreader",),
    ),
    "another plugin says 0 at the very end": (
        """
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_sessionfinish(session):
            yield
            session.exitstatus = 0
        """,
        ("--dsocr-subject=standin:Misreader",),
    ),
    "another plugin runs nothing": ("def pytest_runtestloop(): return True", ()),
    "another plugin swallows a test": (
        "def pytest_runtest_protocol(item): return True if 'second' in item.nodeid else None",
        (),
    ),
    "another plugin stops the run": (STOPPED, ()),
    "another plugin says 0 of a run that it stops": (
        f"{STOPPED}\ndef pytest_sessionfinish(session): session.exitstatus = 0",
        (),
    ),
    "another plugin ends the process after the tests": ("def pytest_sessionfinish(): import os; os._exit(0)", ()),
    "another plugin ends the process before them": ("def pytest_collection(): import os; os._exit(0)", ()),
    "another plugin fails at the end": ("def pytest_sessionfinish(): raise RuntimeError('late')", ()),
    "a file cannot be collected": ("", ("broken.py", "--continue-on-collection-errors")),
    "it stops at the first failure": ("", ("-x", "--dsocr-subject=standin:Misreader")),
    "no test is selected": ("", ("-k", "no_test_is_called_so")),
    "tests are collected alone": ("", ("--collect-only",)),
    "fixtures are made alone": ("", ("--setup-only",)),
    "tests are planned alone": ("", ("--setup-plan",)),
    "the plugin is left out": ("", ("-p", "no:dsocr")),
    "an option is none": ("", ("--no-such-option",)),
    "an option's value is none": ("", ("--dsocr-level=L9",)),
    "the conftest is broken": ("1 / 0", ()),
    "every test is skipped": ("def pytest_runtest_setup(item): pytest.skip('later')", ()),
    "nothing was recorded, and may be missing": (
        """
        @pytest.fixture(scope="session")
        def dsocr_reference(): return standin.Unrecorded()
        """,
        ("--dsocr-may-miss=recording",),
    ),
    "the reference has died": (
        """
        @pytest.fixture(scope="session")
        def dsocr_reference(): return standin.Silent()
        """,
        (),
    ),
    "the folder of the result is a file": (
        "def pytest_collection_finish(): import shutil, pathlib; shutil.rmtree('out'); pathlib.Path('out').touch()",
        (),
    ),
    "the disk is full": (
        "def pytest_collection_finish(): import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900))",
        (),
    ),
}
"""A conftest and arguments of pytest's, of runs that were never whole, or whose subject is wrong."""


@pytest.fixture
def planted_repository(repository: Repository) -> Repository:
    """Three pages, a subject that does what is planted, and a result that passed."""
    path = repository.pytester.path
    shutil.copy(planted.__file__, path)
    for name in PAGES:
        Image.new("RGB", (32, 32)).save(path / f"{name}.png")
    (path / "broken.py").write_text("1 / 0")
    pages = "".join(f"\n    {name}.png" for name in PAGES)
    repository.pytester.makeini(
        f"[pytest]\ndsocr_subject = planted:Planted\ndsocr_pages ={pages}\ndsocr_presets = tiny\n"
    )
    for folder in ("out", "passed"):
        (path / folder).mkdir()
        write_json(path / folder, {**head(PASSED, FINISHED), "verdict": "passes", "passes": True})
    repository.pytester.makepyfile(test_it=TEST_TEXT)
    return repository


def compare(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_dsocr", "compare", "--tests=test_it.py", "--out=out", "--", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def never_passes(repository: Repository, monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str]) -> None:
    """Run the made-up tests as a user does who wants to know, and see that nothing says that they pass."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", f"{repository.pytester.path}:{os.environ['PYTHONPATH']}")
    done = compare(arguments)
    said = done.stdout + done.stderr
    assert done.returncode != 0, said
    assert "verdict         passes" not in done.stdout.splitlines(), said
    try:
        result = read_result(repository.pytester.path / "out")
    except DsocrError:
        return
    if result["id"] != PASSED.id:
        assert result["passes"] is False, said
        assert result["verdict"] != "passes"


@pytest.mark.parametrize(("way", "moment", "workers"), DEATHS)
def test_a_run_that_dies_does_not_pass(
    planted_repository: Repository, monkeypatch: pytest.MonkeyPatch, way: str, moment: str, workers: str
) -> None:
    planted_repository.pytester.makeconftest(CONFTEST.format(reference="Reference"))
    monkeypatch.setenv("PLANTED_WAY", way)
    monkeypatch.setenv("PLANTED_MOMENT", moment)
    never_passes(planted_repository, monkeypatch, WORKERS[workers])


@pytest.mark.parametrize("lie", LIES)
def test_nor_does_one_that_lies_or_stops_short(
    planted_repository: Repository, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    conftest, arguments = LIES[lie]
    both = (CONFTEST.format(reference="Reference"), conftest)
    planted_repository.pytester.makeconftest("\n".join(map(dedent, both)))
    never_passes(planted_repository, monkeypatch, arguments)


def test_every_way_to_die_is_tried() -> None:
    assert {way for way, _, _ in DEATHS} == planted.WAYS.keys()


@pytest.mark.parametrize("workers", WORKERS)
def test_the_same_run_with_nothing_planted_passes(
    planted_repository: Repository, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    planted_repository.pytester.makeconftest(CONFTEST.format(reference="Reference"))
    with pytest.raises(AssertionError, match="verdict         passes"):
        never_passes(planted_repository, monkeypatch, WORKERS[workers])
    result = read_result(planted_repository.pytester.path / "out")
    assert (result["passes"], result["planned"], result["comparisons"]) == (True, 3, 3)


def test_the_result_of_another_run_is_not_taken_for_this_ones(planted_repository: Repository) -> None:
    other = """
        def pytest_unconfigure():
            from pathlib import Path
            Path("out/dsocr.json").write_text(Path("passed/dsocr.json").read_text())
    """
    planted_repository.pytester.makeconftest("\n".join(map(dedent, (CONFTEST.format(reference="Reference"), other))))
    done = compare(())
    assert done.returncode == 1
    assert f"out/dsocr.json is of another run, {PASSED.id}, and not of " in done.stderr


def test_nor_is_a_result_taken_that_was_written_anew_at_exit(planted_repository: Repository) -> None:
    forger = """
        import atexit, json, os
        from pathlib import Path

        @atexit.register
        def forge():
            file = Path("out/dsocr.json")
            file.write_text(json.dumps({**json.loads(file.read_text()), "passes": True, "ended_as": "passes"}))
            os._exit(0)
    """
    planted_repository.pytester.makeconftest("\n".join(map(dedent, (CONFTEST.format(reference="Reference"), forger))))
    done = compare(("--dsocr-subject=standin:Misreader",))
    assert read_result(planted_repository.pytester.path / "out")["passes"] is True
    assert (done.returncode, "out/dsocr.json is not what pytest wrote" in done.stderr) == (1, True)
