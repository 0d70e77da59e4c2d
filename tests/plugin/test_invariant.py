"""No run passes with a comparison that does not, but for those of expected failures, whatever tests and conftests do.

Files of tests are made of pieces at random: one culprit among innocents, under a conftest that may rewrite reports.
"""

from __future__ import annotations

import random
from textwrap import dedent
from typing import NamedTuple

import pytest

from pytest_dsocr.report.file import read_result
from tests.plugin.conftest import Repository

HEAD = """
    import os, threading, time
    from pathlib import Path
    import pytest
    from pytest_dsocr.compare.verdict import Comparison, Verdict

    def made(verdict):
        return [Comparison("text", Verdict(verdict), f"made up, {verdict}")]

    def swallow(check, verdict):
        try:
            check(made(verdict))
        except BaseException:
            pass

    def late(check, verdict):
        until = time.monotonic() + 60
        while not Path("over").exists() and time.monotonic() < until:
            time.sleep(0.01)
        swallow(check, verdict)

    LATE = []
"""


class Piece(NamedTuple):
    """A test, or what stands beside it."""

    body: str
    fails: bool = False
    """Whether pytest fails it, or the run, even if all its comparisons match."""
    excused: bool = False
    """Whether a comparison of it that is WRONG is that of an expected failure."""
    fails_if_match: bool = False


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
        "    LATE.append(threading.Thread(target=late, args=(dsocr_check, {v!r}), name='late'))\n    LATE[-1].start()"
    ),
    "in a fork": Piece(
        "def test_{n}(dsocr_check):\n    dsocr_check(made('MATCH'))\n    if not (child := os.fork()):\n"
        "        swallow(dsocr_check, {v!r})\n        os._exit(0)\n    os.waitpid(child, 0)"
    ),
    "skipped": Piece("def test_{n}(dsocr_check):\n    swallow(dsocr_check, {v!r})\n    pytest.skip('later')"),
    "skipped by a fixture": Piece(
        "@pytest.fixture\ndef before_{n}(dsocr_check):\n    swallow(dsocr_check, {v!r})\n    pytest.skip('later')\n"
        "def test_{n}(before_{n}): pass"
    ),
    "before": Piece(
        "@pytest.fixture\ndef before_{n}(dsocr_check): swallow(dsocr_check, {v!r})\ndef test_{n}(before_{n}): pass"
    ),
    "behind": Piece(
        "@pytest.fixture\ndef behind_{n}(dsocr_check):\n    yield\n    dsocr_check(made({v!r}))\n"
        "def test_{n}(behind_{n}): pass"
    ),
    "swallowed behind": Piece(
        "@pytest.fixture\ndef behind_{n}(dsocr_check):\n    yield\n    swallow(dsocr_check, {v!r})\n"
        "def test_{n}(behind_{n}): pass"
    ),
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
    "of its own": Piece("def test_{n}(dsocr_check):\n    dsocr_check(made({v!r}))\n    assert not 1", fails=True),
    "dies": Piece("def test_{n}(dsocr_check):\n    swallow(dsocr_check, {v!r})\n    os._exit(0)", fails=True),
}
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
WRONG_ONCE = [(piece, "none") for piece in PIECES if piece != "plain"]
REWRITTEN = [(piece, conftest) for conftest in CONFTESTS for piece in ("plain", "swallowed", "after its end")]


def run(repository: Repository, pieces: list[tuple[str, str]], conftest: str, *arguments: str) -> tuple[bool, int]:
    """Run a file of pieces, each with a verdict; say whether its result passes, and pytest's exit status."""
    tests = [PIECES[name].body.format(n=n, v=verdict) for n, (name, verdict) in enumerate(pieces)]
    repository.pytester.makeconftest(dedent(AT_THE_END) + dedent(CONFTESTS[conftest]))
    ended = repository.run("\n".join((dedent(HEAD), *tests)), "--dsocr-out=out", *arguments, apart=True)
    return read_result(repository.pytester.path / "out", unfinished=True)["passes"], ended.ret


def pieces(chosen: random.Random, culprits: list[str]) -> list[tuple[str, str]]:
    """Give pieces in random order: culprits, innocents, all expected failures, and one that matches."""
    good = [name for name, piece in PIECES.items() if not (piece.fails or piece.fails_if_match)]
    found = [(name, "MATCH") for name in (*chosen.choices(good, k=3), "plain")]
    found += [(name, "WRONG") for name, piece in PIECES.items() if piece.excused or name in culprits]
    chosen.shuffle(found)
    return found


@pytest.mark.parametrize(("culprit", "conftest"), [*WRONG_ONCE, *REWRITTEN])
def test_one_comparison_that_does_not_pass_fails_the_run(repository: Repository, culprit: str, conftest: str) -> None:
    workers = ("-n", "2") if culprit in ("dies", "known") else ()
    made = pieces(random.Random(f"{culprit} {conftest}"), [culprit])
    passes, status = run(repository, made, conftest, "--reruns=1", *workers)
    assert (passes, status == 0) == (PIECES[culprit].excused, PIECES[culprit].excused)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "on two workers"])
def test_without_a_culprit_it_passes(repository: Repository, workers: tuple[str, ...]) -> None:
    made = [(name, "MATCH") for name, piece in PIECES.items() if not (piece.fails or piece.fails_if_match)]
    assert run(repository, [*made, *pieces(random.Random(5), [])], "none", "--reruns=1", *workers) == (True, 0)


@pytest.mark.parametrize("seed", range(4))
def test_of_any_mix_it_passes_only_where_nothing_is_in_the_way(repository: Repository, seed: int) -> None:
    chosen = random.Random(seed)
    names, conftest = chosen.sample([*PIECES], k=chosen.randint(0, 3)), chosen.choice([*CONFTESTS])
    passes, _ = run(repository, pieces(chosen, names), conftest, "--reruns=1", "-n", "1")
    assert not passes or all(PIECES[name].excused for name in names)


def test_expected_failures_alone_compare_nothing_that_passes(repository: Repository) -> None:
    assert run(repository, [("known", "WRONG"), ("strictly known", "WRONG")], "none") == (False, 1)
