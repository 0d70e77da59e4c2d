"""Ways to die, lie or stop early. None ends in *passes* or in status 0, even if an earlier result passed.

Each test is a real run in a separate process, in a folder with the result of an earlier run that passed.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.cli.main import main
from pytest_dsocr.history import record
from pytest_dsocr.report.file import FINISHED, UNFINISHED, RunIdentity, head, read_result, write_json
from tests.hardening import misdeeds
from tests.plugin.conftest import CONFTEST, TEST_TEXT, Repository

PAGES = ("good_before", "bad", "good_after")
SPREAD = ("-p", "xdist", "-n", "2")
DEATHS = [
    *((f"{moment}:exit 0", ()) for moment in ("import", "read", "close")),
    *((f"read:{deed}", ()) for deed in ("interrupt", "exit")),
    *((death, SPREAD) for death in ("read:exit 0", "close:kill", "load:exit")),
]
"""A misdeed at its moment, and arguments of pytest's."""
PASSED = RunIdentity("0" * 32, "2026-11-21T04:00:00+00:00", None, "pytest")
LIES: Mapping[str, tuple[str, Sequence[str]]] = {
    "another plugin runs nothing": ("def pytest_runtestloop(): return True", ()),
    "another plugin swallows a test": (
        "def pytest_runtest_protocol(item): return True if 'bad' in item.nodeid else None",
        (),
    ),
    "another plugin says 0 of a run that it stops": (
        """
        SESSIONS = []
        def pytest_sessionstart(session): SESSIONS.append(session)
        def pytest_runtest_logfinish(nodeid): SESSIONS[0].shouldstop = "enough"
        def pytest_sessionfinish(session): session.exitstatus = 0
        """,
        (),
    ),
    "another plugin ends the process after the tests": ("def pytest_sessionfinish(): import os; os._exit(0)", ()),
    "another plugin fails at the end": ("def pytest_sessionfinish(): raise RuntimeError('late')", ()),
    "a file cannot be collected": ("", ("broken.py", "--continue-on-collection-errors")),
    "no test is selected": ("", ("-k", "no_test_is_called_so")),
    "tests are collected alone": ("", ("--collect-only",)),
    "fixtures are made alone": ("", ("--setup-only",)),
    "the plugin is left out": ("", ("-p", "no:dsocr")),
    "the conftest is broken": ("1 / 0", ()),
    "the folder of the result is a file": (
        "def pytest_collection_finish(): import shutil, pathlib; shutil.rmtree('out'); pathlib.Path('out').touch()",
        (),
    ),
}
"""A conftest and arguments of pytest's, of runs that were never whole."""


@pytest.fixture
def planted(repository: Repository) -> Repository:
    """Three pages, a subject that does what the environment says, and a result that passed."""
    path = repository.pytester.path
    shutil.copy(misdeeds.__file__, path)
    for name in PAGES:
        shutil.copy(path / "page.png", path / f"{name}.png")
    (path / "broken.py").write_text("1 / 0")
    pages = "".join(f"\n    {name}.png" for name in PAGES)
    repository.pytester.makeini(
        f"[pytest]\ndsocr_subject = misdeeds:Reader\ndsocr_pages ={pages}\ndsocr_presets = tiny\n"
    )
    (path / "out").mkdir()
    write_json(path / "out", {**head(PASSED, FINISHED), "verdict": "passes", "passes": True})
    repository.pytester.makepyfile(test_it=TEST_TEXT)
    return repository


def compare(planted: Repository, conftest: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the made-up tests as a user does who wants to know."""
    both = (CONFTEST.format(reference="Reference"), conftest)
    planted.pytester.makeconftest("\n".join(map(dedent, both)))
    command = [sys.executable, "-m", "pytest_dsocr", "compare", "--tests=test_it.py", "--out=out", "--", *arguments]
    path = f"{planted.pytester.path}:{os.environ['PYTHONPATH']}"
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def passes(planted: Repository, done: subprocess.CompletedProcess[str]) -> list[bool]:
    """Whether the exit status, the terminal, and the file say so."""
    try:
        result = read_result(planted.pytester.path / "out")
    except DsocrError:
        result = {"id": PASSED.id}
    in_file = result["id"] != PASSED.id and (result["passes"] or result["verdict"] == "passes")
    return [done.returncode == 0, "verdict         passes" in done.stdout.splitlines(), in_file]


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(
    ("misdeed", "conftest", "arguments"),
    [*((misdeed, "", workers) for misdeed, workers in DEATHS), *(("nothing", *lie) for lie in LIES.values())],
    ids=[*(" ".join((misdeed, *workers)) for misdeed, workers in DEATHS), *LIES],
)
def test_a_run_that_dies_lies_or_stops_short_does_not_pass(
    planted: Repository, monkeypatch: pytest.MonkeyPatch, misdeed: str, conftest: str, arguments: Sequence[str]
) -> None:
    monkeypatch.setenv("MISDEED", misdeed)
    done = compare(planted, conftest, *arguments)
    assert not any(passes(planted, done))
    assert arguments or "exit 0" not in misdeed or UNFINISHED in done.stderr


def test_pytest_alone_takes_an_earlier_result_away_before_it_reads_a_conftest(
    planted: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    planted.pytester.makeconftest("1 / 0")
    assert planted.pytester.runpytest_subprocess("--dsocr-out=out").ret != pytest.ExitCode.OK
    assert read_result(planted.pytester.path / "out", unfinished=True)["id"] != PASSED.id


@pytest.mark.dsocr_slow
def test_the_same_run_with_nothing_planted_passes(planted: Repository) -> None:
    assert all(passes(planted, compare(planted, "", *SPREAD)))
    result = read_result(planted.pytester.path / "out")
    assert (result["planned"], result["comparisons"]) == (3, 3)


FORGER = """
    import atexit, json, os
    from pathlib import Path

    FILE = Path("out/dsocr.json")
    PASSED = json.loads(Path("passed.json").read_text())

    def forge():
        found = json.loads(FILE.read_text())
        FILE.write_text({forgery})
        os._exit(0)

    {when}
"""
AT_EXIT, BEFORE = "atexit.register(forge)", "def pytest_sessionfinish(): forge()"


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(
    ("forgery", "when"),
    [
        ("json.dumps(PASSED)", AT_EXIT),
        ("json.dumps({**found, 'passes': True})", AT_EXIT),
        ("'{'", AT_EXIT),
        ("json.dumps({**PASSED, 'id': found['id']})", BEFORE),
        ("json.dumps(PASSED)", BEFORE),
    ],
)
def test_a_result_that_was_written_anew_is_not_believed_and_does_not_stay(
    planted: Repository, forgery: str, when: str, tmp_path: Path
) -> None:
    out = planted.pytester.path / "out"
    (out / "dsocr.json").rename(planted.pytester.path / "passed.json")
    done = compare(planted, FORGER.format(forgery=forgery, when=when), "--dsocr-subject=standin:Misreader")
    assert done.returncode == 1
    found = json.loads((out / "dsocr.json").read_text())
    assert (found["passes"], found["ended_as"], found["verdict"] in done.stderr) == (False, "changed", True)
    assert found["id"] != PASSED.id
    assert not (out / "summary.md").exists()
    assert "is not what pytest wrote" in (out / "index.html").read_text() or when == BEFORE
    assert main(["history", str(tmp_path / "nights"), f"--add={out}"]) == 0
    assert [night.word for night in record.read(tmp_path / "nights")[0]] == ["changed"]
