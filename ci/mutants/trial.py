"""Try mutants: each in a process forked from one in which everything is imported, with the tests that run its lines.

A change in a function replaces that function's code in the forked process. A change of what runs while modules are
imported or tests are collected is made in a process that imports the package anew. The changed code is never on the
disk, so an interpreter that a test starts does not see it.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from ci.mutants.coverage import Coverage, Tracer
from ci.mutants.mutations import Mutant
from ci.mutants.planting import Functions, import_mutated

HEAVY = ("numpy", "PIL.Image", "rapidfuzz", "scipy.optimize", "torch", "safetensors.torch", "tokenizers", "hypothesis")
"""Imported once, in front of every fork."""
OPTIONS = (
    *("-q", "-p", "no:xdist", "-p", "no:randomly", "--hypothesis-profile=mutants"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
BUDGET_S = 15.0
"""CPU time of the tests that a mutant is given at most; the dearest are left out."""
SLOWER, MORE_S = 3, 4
"""A mutant is ended after so many times what its tests take, and so many seconds of CPU time more."""
LONGEST_S = 900
"""The same for time that passes, where a test waits for what never comes."""
MEMORY_BYTES = 2**35
NO_TESTS = 5
"""The exit status of pytest where nothing failed because nothing was run."""


class Outcome(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    NOT_RUN = "not run"
    """It survived: no test runs it."""


@dataclass(frozen=True)
class Target:
    """Code, and the tests that hold it: paths from the repository's root."""

    name: str
    code: str
    tests: tuple[str, ...]

    def files(self, root: Path) -> list[str]:
        """Give the files of code."""
        found = [root / self.code] if self.code.endswith(".py") else sorted((root / self.code).rglob("*.py"))
        return [path.relative_to(root).as_posix() for path in found]


def try_all(
    root: Path, target: Target, mutants: Sequence[Mutant], on_outcome: Callable[[Mutant, Outcome], None]
) -> None:
    """Try mutants of a target one after the other; to be called where the package is not imported yet."""
    for name in HEAVY:
        importlib.import_module(name)
    _hypothesis_profile()
    fork = get_context("fork")
    told, tell = fork.Pipe(duplex=False)
    first = fork.Process(target=_try_in_functions, args=(root, target, mutants, tell))
    first.start()
    tell.close()
    left: list[tuple[Mutant, list[str]]] = []
    for number, said in _received(told):
        if isinstance(said, Outcome):
            on_outcome(mutants[number], said)
        else:
            left.append((mutants[number], said))
    first.join()
    if first.exitcode:
        raise RuntimeError(f"pytest ended with {first.exitcode} on the unchanged code of {target.name}: run its tests")
    for mutant, tests in left:
        one = fork.Process(target=_try_anew, args=(root, mutant, tests))
        one.start()
        one.join()
        on_outcome(mutant, _outcome(one.exitcode or 0))


def _hypothesis_profile() -> None:
    """The same examples each time, none kept, and no smaller example looked for."""
    from hypothesis import HealthCheck, Phase, settings

    phases = (Phase.explicit, Phase.generate)
    slow = [HealthCheck.too_slow]
    settings.register_profile(
        "mutants", deadline=None, suppress_health_check=slow, derandomize=True, database=None, phases=phases
    )


def _received(told: Connection) -> Iterator[tuple[int, Outcome | list[str]]]:
    while True:
        try:
            yield told.recv()
        except EOFError:
            return


class _Trials:
    """A plugin of pytest that tries mutants in place of running tests."""

    def __init__(self, root: Path, target: Target, mutants: Sequence[Mutant], tell: Connection) -> None:
        self.root, self.target, self.mutants, self.tell = root, target, mutants, tell
        self.tracer = Tracer(root, target.files(root))
        self.is_forked = False
        self.key = f"mutants/{target.name}-{digest(root, target)}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Note what runs while tests are collected."""
        self.tracer.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Fork for each mutant; a forked process returns None, and so runs the tests that it is left with."""
        self.tracer.stop()
        cache = session.config.cache
        assert cache is not None
        if cache.get(self.key, None) is None and self._forks(None):
            session.config.pluginmanager.register(self.tracer)
            return None
        coverage = Coverage.from_json(cache.get(self.key, None))
        functions = Functions(self.root, self.target.files(self.root))
        for number, mutant in enumerate(self.mutants):
            lines = mutant.file, mutant.lines
            own, code = functions.find(mutant)
            is_late = code is not None and not coverage.runs_outside(*lines)
            chosen = _affordable(coverage.of_lines(*lines) if is_late else coverage.of_file(mutant.file), coverage)
            if not chosen:
                self.tell.send((number, Outcome.NOT_RUN))
            elif not is_late or code is None:
                self.tell.send((number, [coverage.tests[test][0] for test in chosen]))
            elif self._forks(number):
                _limit(sum(coverage.tests[test][1] for test in chosen))
                for one in own:
                    one.__code__ = code
                session.items[:] = [session.items[test] for test in chosen]
                session.config.option.maxfail = 1
                return None
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """End a forked process."""
        if not self.is_forked:
            return
        if session.config.pluginmanager.is_registered(self.tracer) and session.config.cache:
            session.config.cache.set(self.key, self.tracer.coverage().to_json())
        os._exit(exitstatus)

    def _forks(self, number: int | None) -> bool:
        """Give True in a forked process, and in this one False, when that has ended and its outcome is told."""
        if (process := os.fork()) == 0:
            self.is_forked = True
            return True
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if number is not None:
            self.tell.send((number, _outcome(status)))
        return False


def _try_in_functions(root: Path, target: Target, mutants: Sequence[Mutant], tell: Connection) -> None:
    _run_pytest(root, target.tests, _Trials(root, target, mutants, tell))


def _try_anew(root: Path, mutant: Mutant, tests: Sequence[str]) -> None:
    _limit(BUDGET_S)
    _silence()
    import_mutated(root, mutant)
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    _run_pytest(root, ("-x", "-p", "no:cacheprovider", *files), _Only(tests))


class _Only:
    """A plugin of pytest that runs some tests, in an order of its own."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._order = {test: at for at, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave those tests."""
        items[:] = sorted((one for one in items if one.nodeid in self._order), key=lambda one: self._order[one.nodeid])


def _silence() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


def _run_pytest(root: Path, typed: Sequence[str], plugin: object) -> None:
    os.chdir(root)
    _silence()
    with tempfile.TemporaryDirectory() as folder:
        status = pytest.main([*OPTIONS, f"--basetemp={folder}/pytest", *typed], plugins=[plugin])
    os._exit(status)


def _outcome(status: int) -> Outcome:
    return Outcome.SURVIVED if status in (0, NO_TESTS) else Outcome.KILLED


def _affordable(tests: Sequence[int], coverage: Coverage) -> list[int]:
    chosen: list[int] = []
    seconds = 0.0
    for test in tests:
        seconds += coverage.tests[test][1]
        if chosen and seconds > BUDGET_S:
            break
        chosen.append(test)
    return chosen


def _limit(tests_s: float) -> None:
    """End this process where it takes much longer than these tests, or all the memory."""
    signal.setitimer(signal.ITIMER_PROF, SLOWER * tests_s + MORE_S)
    signal.alarm(LONGEST_S)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def digest(root: Path, target: Target) -> str:
    """Hash whatever the coverage depends on."""
    places = [root / "pytest_dsocr", *(root / test for test in target.tests)]
    files = sorted(path for place in places for path in ([place] if place.is_file() else place.rglob("*.py")))
    files += sorted((root / "tests").glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
