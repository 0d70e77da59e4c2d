"""No run passes with a comparison that does not, but for those of expected failures, whatever tests and conftests do.

A file holds every way to hide a comparison, each a test of its own; a conftest may rewrite what is reported of them.
"""

from textwrap import dedent
from typing import Any, NamedTuple

import pytest

from pytest_dsocr.report.file import read_result
from tests.plugin.conftest import Repository

HEAD = """
    import os, threading, time
    from pathlib import Path
    import pytest
    from pytest_dsocr.compare.verdict import Comparison, Verdict

    def made(verdict, what="text"):
        return [Comparison(what, Verdict(verdict), f"made up, {verdict}")]

    def swallow(check, verdict, *what):
        try:
            check(made(verdict, *what))
        except BaseException:
            pass

    def late(check, verdict):
        until = time.monotonic() + 60
        while not Path("over").exists() and time.monotonic() < until:
            time.sleep(0.01)
        swallow(check, verdict, "boxes")
"""


class Piece(NamedTuple):
    """A test, and its expected treatment."""

    body: str
    excused: bool = False
    """Whether the test is an expected failure, which excuses a WRONG comparison."""
    fails_if_match: bool = False


FIXTURE = "@pytest.fixture\ndef {where}_{{n}}(dsocr_check):\n    {body}\ndef test_{{n}}({where}_{{n}}): pass"
PIECES = {
    "plain": Piece("def test_{n}(dsocr_check): dsocr_check(made({v!r}))"),
    "swallowed": Piece("def test_{n}(dsocr_check): swallow(dsocr_check, {v!r})"),
    "expected to raise": Piece(
        "def test_{n}(dsocr_check):\n    with pytest.raises(pytest.fail.Exception): dsocr_check(made({v!r}))",
        fails_if_match=True,
    ),
    "soft": Piece("def test_{n}(dsocr_check):\n    for one in ({v!r}, 'MATCH'): swallow(dsocr_check, one)"),
    "in a thread": Piece(
        "def test_{n}(dsocr_check):\n    dsocr_check(made('MATCH'))\n"
        "    one = threading.Thread(target=swallow, args=(dsocr_check, {v!r}))\n    one.start(); one.join()"
    ),
    "after its end": Piece(
        "def test_{n}(dsocr_check):\n    dsocr_check(made('MATCH'))\n"
        "    threading.Thread(target=late, args=(dsocr_check, {v!r}), name='late').start()"
    ),
    "in a fork": Piece(
        "def test_{n}(dsocr_check):\n    dsocr_check(made('MATCH'))\n    if not (child := os.fork()):\n"
        "        swallow(dsocr_check, {v!r})\n        os._exit(0)\n    os.waitpid(child, 0)"
    ),
    "skipped": Piece("def test_{n}(dsocr_check):\n    swallow(dsocr_check, {v!r})\n    pytest.skip('later')"),
    "skipped by a fixture": Piece(
        FIXTURE.format(where="before", body="swallow(dsocr_check, {v!r})\n    pytest.skip('later')")
    ),
    "before": Piece(FIXTURE.format(where="before", body="swallow(dsocr_check, {v!r})")),
    "behind": Piece(FIXTURE.format(where="behind", body="yield\n    dsocr_check(made({v!r}))")),
    "swallowed behind": Piece(FIXTURE.format(where="behind", body="yield\n    swallow(dsocr_check, {v!r})")),
    "finalized": Piece("def test_{n}(request, dsocr_check): request.addfinalizer(lambda: swallow(dsocr_check, {v!r}))"),
    "tried again": Piece(
        "def test_{n}(dsocr_check):\n    first = not Path('tried_{n}').exists()\n    Path('tried_{n}').touch()\n"
        "    swallow(dsocr_check, 'MATCH' if first else {v!r})\n    assert not first"
    ),
    "known": Piece("@pytest.mark.xfail\ndef test_{n}(dsocr_check): dsocr_check(made({v!r}))", excused=True),
    "strictly known": Piece(
        "@pytest.mark.xfail(strict=True)\ndef test_{n}(dsocr_check): dsocr_check(made({v!r}))",
        excused=True,
        fails_if_match=True,
    ),
    "known, of another kind": Piece(
        "@pytest.mark.xfail(raises=KeyError)\ndef test_{n}(dsocr_check): dsocr_check(made({v!r}))"
    ),
    "known and swallowed": Piece("@pytest.mark.xfail\ndef test_{n}(dsocr_check): swallow(dsocr_check, {v!r})"),
    "known in the end": Piece(
        "def test_{n}(dsocr_check):\n    swallow(dsocr_check, {v!r})\n    pytest.xfail('known')", excused=True
    ),
}
DIES = "def test_dies(dsocr_check):\n    swallow(dsocr_check, 'WRONG')\n    os._exit(0)"
AT_THE_END = """
    import pytest

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop():
        import threading
        from pathlib import Path
        done = yield
        Path("over").touch()
        for thread in threading.enumerate():
            if thread.name == "late":
                thread.join()
        return done
"""
CONFTESTS = {
    "none": "",
    "swallows calls": """
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_call():
            try:
                yield
            except BaseException:
                pass
    """,
    "rewrites reports": """
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_makereport(item, call):
            report = yield
            report.outcome, report.longrepr = "passed", None
            return report
    """,
    "makes its own": """
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_makereport(item, call):
            yield
            call.excinfo = None
            return pytest.TestReport.from_item_and_call(item, call)
    """,
    "expects all": """
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_makereport(item, call):
            report = yield
            if call.when == "call":
                report.outcome, report.wasxfail = "skipped", "known"
            return report
    """,
    "rewrites what is told": """
        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_logreport(report):
            report.outcome = "passed"
            vars(report).pop("dsocr", None)
    """,
    "says 0": """
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_sessionfinish(session):
            yield
            session.exitstatus = 0
    """,
}


def run(repository: Repository, names: list[str], verdict: str, conftest: str, *arguments: str, more: str = "") -> Any:
    """Run the named pieces with one verdict, and return the result together with pytest's exit status."""
    tests = [PIECES[name].body.format(n=n, v=verdict) for n, name in enumerate(names)]
    repository.pytester.makeconftest(dedent(AT_THE_END) + dedent(conftest))
    arguments = ("--dsocr-out=out", "--reruns=1", *arguments)
    ended = repository.run("\n".join((dedent(HEAD), *tests, more)), *arguments, apart=True)
    return {**read_result(repository.pytester.path / "out", unfinished=True), "status": ended.ret}


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(
    ("conftest", "workers"),
    [*((conftest, ()) for conftest in CONFTESTS), ("none", ("-n", "1")), ("rewrites what is told", ("-n", "1"))],
)
def test_no_way_hides_a_comparison_that_is_wrong(
    repository: Repository, conftest: str, workers: tuple[str, ...]
) -> None:
    """Each test is reported as failed, or as an expected failure."""
    names = [*PIECES]
    result = run(repository, names, "WRONG", CONFTESTS[conftest], *workers)
    outcomes = {one["nodeid"].rpartition("_")[2]: one["outcome"] for one in result["tests"]}
    hidden = {name for n, name in enumerate(names) if outcomes.get(str(n)) not in ("failed", "error")}
    excused = {name for name, piece in PIECES.items() if piece.excused}
    if conftest == "none":
        assert hidden == excused
    else:  # which may have nothing tried again, or make an expected failure of a test that is marked as one
        assert hidden <= {*excused, "tried again", "known and swallowed", "known, of another kind"}
    assert (result["passes"], result["status"]) == (False, 1)


@pytest.mark.dsocr_slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "on two workers"])
def test_what_matches_passes_and_each_comparison_counts(repository: Repository, workers: tuple[str, ...]) -> None:
    names = [name for name, piece in PIECES.items() if not piece.fails_if_match]
    result = run(repository, names, "MATCH", "", *workers)
    assert (result["passes"], result["status"]) == (True, 0)
    assert result["counts"]["MATCH"] == len(names) + 3, "for three tests compare twice"
    assert len(result["flaky"]) == 1, "the one that was tried again"


@pytest.mark.dsocr_slow
def test_nor_does_the_death_of_a_worker(repository: Repository) -> None:
    result = run(repository, ["known"], "WRONG", "", "-n", "1", more=DIES)
    assert (result["passes"], result["status"]) == (False, 1)


def test_a_thread_that_compares_after_the_run_fails_it(repository: Repository) -> None:
    late = "def test_late(dsocr_check):\n    dsocr_check(made('MATCH'))\n    threading.Thread(target=after).start()"
    after = "\ndef after():\n    threading.main_thread().join()\n    swallow(CHECKS[0], 'WRONG')\nCHECKS = []\n"
    keeps = late.replace("    dsocr_check(", "    CHECKS.append(dsocr_check)\n    dsocr_check(")
    assert run(repository, [], "MATCH", "", more=after + keeps)["status"] == 1
