"""What the plugin keeps on pytest's config and on its items, and what it made last of a case."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import pytest

if TYPE_CHECKING:
    from pytest_dsocr.foundation.elapsed import Elapsed
    from pytest_dsocr.observation.case import Case
    from pytest_dsocr.observation.config import Config
    from pytest_dsocr.pages.page_list import BadPage
    from pytest_dsocr.plugin.check import Check, Journal
    from pytest_dsocr.report.file import RunIdentity
    from pytest_dsocr.report.payload import CasePayload, Entry, LeftPayload, RunPayload


CONFIG: pytest.StashKey[Config] = pytest.StashKey()
"""Of the config: the run's options, once something of ours is used; see ``configured.own_config``."""
OUT_FOLDER: pytest.StashKey[Path] = pytest.StashKey()
IDENTITY: pytest.StashKey[RunIdentity] = pytest.StashKey()
"""Of the config: where the run's result is marked as running, and as which run."""
WITNESS: pytest.StashKey[int | None] = pytest.StashKey()
"""Of the config: the pipe that takes the digest of the result."""
ALL_CASES: pytest.StashKey[list[Case]] = pytest.StashKey()
"""Of the config: every case that the options name."""
ALL_PAGES: pytest.StashKey[list[str]] = pytest.StashKey()
"""Of the config: every page that they name, those of other shards as well, in order."""
COLLECTED: pytest.StashKey[dict[str, None]] = pytest.StashKey()
"""Of the config: our tests that were found, but for those that the run's own level and shard leave out."""
DESELECTED: pytest.StashKey[LeftPayload] = pytest.StashKey()
"""Of the config: which of them were then not to be run."""
BAD_PAGES: pytest.StashKey[list[BadPage]] = pytest.StashKey()
"""Of the config: every page that they name and that cannot be had."""
RUN: pytest.StashKey[RunPayload] = pytest.StashKey()
"""Of the config: what is held against what, once both are there."""
CASES: pytest.StashKey[dict[str, CasePayload]] = pytest.StashKey()
"""Of the config: the cases that were asked about, by id."""
CHECK: pytest.StashKey[Check] = pytest.StashKey()
"""Of a test: what it compared."""
JOURNALS: pytest.StashKey[list[Entry]] = pytest.StashKey()
"""Of the controller's config: what its workers compared that does not pass."""
ATTEMPT: pytest.StashKey[int] = pytest.StashKey()
"""Of a test: how often it was begun."""
JOURNAL: pytest.StashKey[Journal] = pytest.StashKey()
"""Of the config: what this process compared that does not pass."""
LEFT_OUT: pytest.StashKey[str] = pytest.StashKey()
"""Of a test that we skipped: what is missing, a word of ``cases.config.MISSING``, the level that is not offered, or
``Reason.NOT_OFFERED``."""
PERF: pytest.StashKey[dict[str, Any]] = pytest.StashKey()
"""Of the config: what was measured, as JSON values."""
ELAPSED: pytest.StashKey[Elapsed] = pytest.StashKey()
"""Of the config: where the time of this process goes."""
LOADED: pytest.StashKey[object] = pytest.StashKey()
"""Of the config: the subject loaded from options, where no fixture of the user's replaces it."""
REPORTED: pytest.StashKey[dict[tuple[str | None, str], str]] = pytest.StashKey()
"""Of the config: the errors that were told, by stage and message, and the test that told each whole."""
UNMATCHED: pytest.StashKey[list[str]] = pytest.StashKey()
"""Of the config: lines of the ledger of known failures that match no test."""
NOTES: pytest.StashKey[list[str]] = pytest.StashKey()
"""Of the config: what else was noticed in this process, a sentence each."""


def leave_out(item: pytest.Item, missing: str, reason: str) -> NoReturn:
    """Skip ``item``, and note what was missing."""
    __tracebackhide__ = True
    item.stash[LEFT_OUT] = str(missing)  # plain, for pytest-xdist sends it on
    pytest.skip(reason)


def forget(item: pytest.Item) -> None:
    """Forget what an earlier try of a test left: it may be run again."""
    item.stash[ATTEMPT] = item.stash.get(ATTEMPT, 0) + 1
    if CHECK in item.stash:
        del item.stash[CHECK]
    if LEFT_OUT in item.stash:
        del item.stash[LEFT_OUT]


T = TypeVar("T")


class Latest(Generic[T]):
    """Holds one thing, for what is made of a case may be large; where it could not be made, the error instead.

    A fixture of the session's would be kept by its case alone, and be another subject's where a folder of tests has a
    subject of its own.
    """

    def __init__(self) -> None:
        self._of: tuple[object, tuple[object, ...]] | None = None
        self._made: list[T] = []
        self._error: Exception | None = None

    def get(self, make: Callable[[], T], case: object, *sides: object) -> T:
        """Give what ``make`` gave of a ``case`` equal to this and these very ``sides``, or raise what it raised."""
        if not self._is_of(case, sides):
            self._of, self._error = (case, sides), None
            self._made.clear()  # before the next is made, so that there is room for it
            try:
                self._made.append(make())
            except Exception as error:
                self._error = error
        if self._error is not None:
            raise self._error
        return self._made[0]

    def made(self, case: object, side: object) -> T | None:
        """Give what was made last, if that was of ``case`` and ``side`` was the first of its sides; None if not."""
        if self._of is None or not self._made or self._of[0] != case or self._of[1][0] is not side:
            return None
        return self._made[0]

    def _is_of(self, case: object, sides: tuple[object, ...]) -> bool:
        if self._of is None:
            return False
        of_case, of_sides = self._of
        return of_case == case and all(one is other for one, other in zip(of_sides, sides, strict=True))
