"""Which tests run which lines, and what each test costs."""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

Lines = set[tuple[str, int]]

DEARER_S = (0.02, 0.2)
"""Where tests begin to be dear, and very dear; the cheapest are run first."""


@dataclass(frozen=True)
class Coverage:
    """What the tests of a target run.

    Args:
        tests: those that pass, by their position in the collection: id and CPU seconds.
        lines: of each file, the tests that run a line.
        outside: of each file, the lines that are run while tests are collected.
    """

    tests: dict[int, tuple[str, float]]
    lines: dict[str, dict[int, list[int]]]
    outside: dict[str, list[int]]

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Coverage:
        """Read what :meth:`to_json` gave."""
        return cls(
            {int(at): (name, seconds) for at, (name, seconds) in told["tests"].items()},
            {file: {int(at): tests for at, tests in lines.items()} for file, lines in told["lines"].items()},
            told["outside"],
        )

    def to_json(self) -> dict[str, Any]:
        """Give it as JSON values."""
        return {"tests": self.tests, "lines": self.lines, "outside": self.outside}

    def of_lines(self, file: str, lines: tuple[int, int]) -> list[int]:
        """Give the tests that run any of these lines, the cheap ones first, else in the order of the collection."""
        own = self.lines.get(file, {})
        found = {test for line in range(lines[0], lines[1] + 1) for test in own.get(line, ())}
        return sorted(found & {*self.tests}, key=lambda test: (self._dearness(test), test))

    def of_file(self, file: str) -> list[int]:
        """Give all tests, as any may use what a module defines; of equally dear ones those first that run its lines."""
        own = {test for tests in self.lines.get(file, {}).values() for test in tests}
        return sorted(self.tests, key=lambda test: (self._dearness(test), test not in own, test))

    def runs_outside(self, file: str, lines: tuple[int, int]) -> bool:
        """Whether these lines are run while tests are collected."""
        return any(lines[0] <= line <= lines[1] for line in self.outside.get(file, ()))

    def _dearness(self, test: int) -> int:
        return sum(self.tests[test][1] > dear for dear in DEARER_S)


class Tracer:
    """A plugin of pytest that notes the lines of some files that are run, by test; used in one process alone."""

    def __init__(self, root: Path, files: Iterable[str]) -> None:
        self._files = {str(root / file): file for file in files}
        self._now: Lines = set()
        self._outside: Lines = set()
        self._shared: defaultdict[str, Lines] = defaultdict(set)
        """What a fixture ran that several tests share, by its name."""
        self._tests: list[tuple[pytest.Item, float, Lines]] = []
        self._failed: set[str] = set()

    def start(self) -> None:
        """Note lines from now on."""
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)

    def stop(self) -> None:
        """Note no more; what was noted so far was outside of any test."""
        sys.settrace(None)
        self._outside, self._now = self._now, set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note what a test runs."""
        began, self._now = _cpu_s(), set()
        self.start()
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self._tests.append((item, _cpu_s() - began, self._now))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """Note apart what a fixture runs that several tests share."""
        before = self._now
        if fixturedef.scope != "function":
            self._now = set()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self._shared[fixturedef.argname] |= self._now
                self._now = before | self._now

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leave out a test that does not pass as the code stands."""
        if report.failed or report.skipped:
            self._failed.add(report.nodeid)

    def coverage(self) -> Coverage:
        """Say what was noted."""
        lines: dict[str, dict[int, list[int]]] = {file: defaultdict(list) for file in self._files.values()}
        tests = {}
        for at, (item, seconds, ran) in enumerate(self._tests):
            if item.nodeid in self._failed:
                continue
            tests[at] = (item.nodeid, seconds)
            names = getattr(item, "fixturenames", ())
            for file, line in ran.union(*(self._shared[name] for name in names if name in self._shared)):
                lines[file][line].append(at)
        outside = {file: sorted(line for of, line in self._outside if of == file) for file in lines}
        return Coverage(tests, {file: dict(of) for file, of in lines.items()}, outside)

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = self._files.get(frame.f_code.co_filename)
        if file is None:
            return None

        def on_line(frame: FrameType, event: str, argument: Any) -> Any:
            self._now.add((file, frame.f_lineno))
            return on_line

        return on_line


def _cpu_s() -> float:
    return sum(os.times()[:4])
