"""A scheduler of pytest-xdist that keeps the tests of one case on one worker, and gives up a case that killed one.

It mends two things of the scheduler that it is made of, which by itself tries the test that killed a worker on one
worker after another, and waits for ever where the last unit of work is lost, or is given to a worker that is new.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

from pytest_dsocr.plugin.workers import scope_of

AHEAD = 2
"""Tests that a worker has waiting at least: it begins one only when it knows of the next, or that there is none."""


class CaseScopeScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Scopes are cases; tests of no case stand by themselves."""

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        self._given_up: list[str] = []

    def take_given_up(self) -> list[str]:
        """Give the tests that were given up since the last call: those left of the case that killed a worker."""
        given_up, self._given_up = self._given_up, []
        return given_up

    def remove_node(self, node: Any) -> str | None:
        """Forget a worker; of one that died, give the test that it was at, and its other cases back."""
        left = [
            (scope, {test: False for test, done in unit.items() if not done})
            for scope, unit in self.assigned_work.pop(node).items()
        ]
        unfinished = [(scope, unit) for scope, unit in left if unit]
        if not unfinished:
            return None
        (_, first), *others = unfinished
        killer, *given_up = map(str, first)
        self._given_up += given_up
        for scope, unit in reversed(others):
            self.workqueue[scope] = unit
            self.workqueue.move_to_end(scope, last=False)
        for other in self.nodes:
            self._reschedule(other)
        return killer

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _reschedule(self, node: Any) -> None:
        if node.shutting_down:
            return
        while self.workqueue and self._pending_of(self.assigned_work[node]) <= AHEAD:
            self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()
