"""Plan of a run: the tests that were collected, those that ended, and how pytest ended."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pytest_dsocr.base.words import count

STATUS_IN_WORDS: Mapping[int, str] = {
    1: "tests failed that do not use pytest-dsocr",
    2: "the run was interrupted",
    3: "pytest had an internal error",
    4: "pytest refused its arguments",
    5: "no test was run",
}
"""Reason for each exit status of pytest, if nothing else explains it."""
DIED = "???"
"""The phase in which pytest-xdist reports a test whose worker died."""


@dataclass
class Plan:
    """The tests that were collected, those that ended, and how pytest ended."""

    planned: dict[str, None] = field(default_factory=dict)
    """Every selected test, of this plugin or not, in the order of collection."""
    ended: set[str] = field(default_factory=set)
    """Tests that were torn down, or lost with their worker."""
    uncollected: list[str] = field(default_factory=list)
    """Files that could not be collected."""
    exit_status: int | None = None
    """Exit status of pytest itself, before this plugin changes it; None until the run ends."""
    problems: list[str] = field(default_factory=list)
    """Other reasons for a failed run, none caused by the subject, one sentence each."""
    gates: list[str] = field(default_factory=list)
    """Failures that other plugins reported after the last test, one sentence each."""
    others_failed: bool = False
    """Whether a test failed that does not use pytest-dsocr."""

    def add(self, tests: Iterable[str]) -> None:
        """Add selected tests."""
        self.planned.update(dict.fromkeys(tests))

    @property
    def not_ended(self) -> list[str]:
        """Planned tests that did not run to their end."""
        return [test for test in self.planned if test not in self.ended]

    @property
    def is_whole(self) -> bool:
        """Whether every test was collected and has ended."""
        return not (self.not_ended or self.uncollected)

    def why_not(self, *, failing: bool) -> list[str]:
        """Say why the run does not pass, whatever was compared.

        Args:
            failing: whether tests of ours failed, which explains pytest's exit status 1.
        """
        reasons = []
        if left := self.not_ended:
            reasons.append(f"{len(left)} of {count(len(self.planned), 'planned test')} did not end")
        if self.uncollected:
            reasons.append(f"{count(len(self.uncollected), 'file')} could not be collected")
        if self.exit_status is None:
            reasons.append("the run has not ended")
        elif self.exit_status and not (self.exit_status == 1 and (failing or reasons or self.problems or self.gates)):
            reasons.append(STATUS_IN_WORDS.get(self.exit_status, f"pytest ended with status {self.exit_status}"))
        return reasons + self.problems + self.gates
