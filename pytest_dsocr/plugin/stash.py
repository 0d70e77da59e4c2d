"""Keys of the plugin's data on pytest's config and items, and the kept results of the last case."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pytest

if TYPE_CHECKING:
    from pytest_dsocr.base.elapsed import Elapsed
    from pytest_dsocr.pages.named import Cases
    from pytest_dsocr.plugin.check import Check
    from pytest_dsocr.plugin.journal import Journal
    from pytest_dsocr.records.config import Config
    from pytest_dsocr.report.case_result import CaseResult
    from pytest_dsocr.report.file import RunIdentity
    from pytest_dsocr.report.run_sides import RunSides
    from pytest_dsocr.report.worker_report import Deselection


T = TypeVar("T")
CONFIG: pytest.StashKey[Config] = pytest.StashKey()
"""On the config: the run's options, once something of ours is used; see ``config.own_config``."""
OUT_FOLDER: pytest.StashKey[Path] = pytest.StashKey()
IDENTITY: pytest.StashKey[RunIdentity] = pytest.StashKey()
"""On the config: folder of the result that is marked as running, and the identity in the mark."""
WITNESS: pytest.StashKey[int | None] = pytest.StashKey()
"""On the config: the pipe that takes the digest of the result."""
NAMED: pytest.StashKey[Cases] = pytest.StashKey()
"""On the config: the cases and pages that the options name, once a test asks for any."""
COLLECTED: pytest.StashKey[dict[str, None]] = pytest.StashKey()
"""On the config: our collected tests, except those that the run's level and shard leave out."""
DESELECTED: pytest.StashKey[Deselection] = pytest.StashKey()
"""On the config: deselected tests among them."""
RUN: pytest.StashKey[RunSides] = pytest.StashKey()
"""On the config: both sides of the run, once they are open."""
CASES: pytest.StashKey[dict[str, CaseResult]] = pytest.StashKey()
"""On the config: compared cases, by id."""
CHECK: pytest.StashKey[Check] = pytest.StashKey()
"""On a test item: its comparisons."""
ATTEMPT: pytest.StashKey[int] = pytest.StashKey()
"""On a test item: number of its starts."""
JOURNAL: pytest.StashKey[Journal] = pytest.StashKey()
"""On the config: journal of comparisons that do not pass, or that no report carries."""
LEFT_OUT: pytest.StashKey[str] = pytest.StashKey()
"""On a test item that we skipped: the missing thing (of ``records.config.MISSING``), the level, or
``Reason.NOT_OFFERED``."""
PERF: pytest.StashKey[dict[str, Any]] = pytest.StashKey()
"""On the config: measured times, as JSON values."""
ELAPSED: pytest.StashKey[Elapsed] = pytest.StashKey()
"""On the config: time of this process, by part."""
LOADED: pytest.StashKey[object] = pytest.StashKey()
"""On the config: subject that the options name, unless a fixture of the user replaces it."""
UNMATCHED: pytest.StashKey[list[str]] = pytest.StashKey()
"""On the config: lines of the ledger of known failures that match no test."""
WATCHED: pytest.StashKey[bool] = pytest.StashKey()
"""On the config: whether the subject is watched already."""
NOTES: pytest.StashKey[list[str]] = pytest.StashKey()
"""On the config: notes of this process, a sentence each."""


def uncaptured(config: pytest.Config) -> AbstractContextManager[None]:
    """Return a context in which pytest does not capture the standard streams."""
    capture = config.pluginmanager.get_plugin("capturemanager")
    return capture.global_and_fixture_disabled() if capture else nullcontext()


def leave_out(item: pytest.Item, missing: str, reason: str) -> NoReturn:
    """Skip ``item``, and note what is missing."""
    __tracebackhide__ = True
    item.stash[LEFT_OUT] = str(missing)  # plain, for pytest-xdist sends it on
    pytest.skip(reason)


def forget(item: pytest.Item) -> None:
    """Forget the data of a test's earlier try, because a test may be run again."""
    item.stash[ATTEMPT] = item.stash.get(ATTEMPT, 0) + 1
    if CHECK in item.stash:
        del item.stash[CHECK]
    if LEFT_OUT in item.stash:
        del item.stash[LEFT_OUT]


class KeptCase:
    """Results of the last case, or the errors that prevented them, by name.

    Only one case is kept, because its results may be large. They depend on the subject as well, since a folder of tests
    may have its own; a fixture of session scope would depend on the case only.
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[tuple[object, ...], Any]] = {}

    def get(self, name: str, make: Callable[[], T], case: object, *sides: object) -> T:
        """Return the result of ``make`` for an equal ``case`` and the same ``sides``, or raise its error again."""
        if not self._is_of(name, case, sides):
            self._made.pop(name, None)  # before the next is made, so that there is room for it
            try:
                self._made[name] = ((case, *sides), make())
            except Exception as error:
                self._made[name] = ((case, *sides), error)
        made: T | Exception = self._made[name][1]
        if isinstance(made, Exception):
            raise made
        return made

    def of_subject(self, part: str, make: Callable[[], T], case: object, subject: object) -> T:
        """Return a part of the ``subject``'s answer if both sides have been compared, or else what ``make`` returns."""
        return getattr(self.answer(case, subject), part, None) or self.get(part, make, case, subject)

    def answer(self, case: object, subject: object) -> Any:
        """Return the ``subject``'s answer in the comparison of both sides, or None without one."""
        report = self._made[COMPARED][1] if self._is_of(COMPARED, case, (subject,)) else None
        return None if report is None or isinstance(report, Exception) else report.exchange.answer

    def _is_of(self, name: str, case: object, sides: tuple[object, ...]) -> bool:
        if name not in self._made:
            return False
        of_case, *of_sides = self._made[name][0]
        return of_case == case and all(one is other for one, other in zip(of_sides, sides, strict=False))


COMPARED = "compared"
"""Name of the kept report of both sides."""
