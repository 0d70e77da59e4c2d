"""What the plugin keeps on pytest's config and on its items, and what it made last of a case."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from pytest_dsocr.base.elapsed import Elapsed
    from pytest_dsocr.pages.named import Cases
    from pytest_dsocr.plugin.check import Check
    from pytest_dsocr.plugin.journal import Journal
    from pytest_dsocr.records.config import Config
    from pytest_dsocr.report.file import RunIdentity
    from pytest_dsocr.report.payload import CasePayload, LeftPayload, RunPayload


CONFIG: pytest.StashKey[Config] = pytest.StashKey()
"""On the config: the run's options, once something of ours is used; see ``config.own_config``."""
OUT_FOLDER: pytest.StashKey[Path] = pytest.StashKey()
IDENTITY: pytest.StashKey[RunIdentity] = pytest.StashKey()
"""On the config: where the run's result is marked as running, and as which run."""
WITNESS: pytest.StashKey[int | None] = pytest.StashKey()
"""On the config: the pipe that takes the digest of the result."""
NAMED: pytest.StashKey[Cases] = pytest.StashKey()
"""On the config: the cases and pages that the options name, once a test asks for any."""
COLLECTED: pytest.StashKey[dict[str, None]] = pytest.StashKey()
"""On the config: our tests that were found, but for those that the run's own level and shard leave out."""
DESELECTED: pytest.StashKey[LeftPayload] = pytest.StashKey()
"""On the config: which of them were then not to be run."""
RUN: pytest.StashKey[RunPayload] = pytest.StashKey()
"""On the config: what is compared with what, once both are there."""
CASES: pytest.StashKey[dict[str, CasePayload]] = pytest.StashKey()
"""On the config: the cases that were asked about, by id."""
CHECK: pytest.StashKey[Check] = pytest.StashKey()
"""On a test item: what it compared."""
ATTEMPT: pytest.StashKey[int] = pytest.StashKey()
"""On a test item: how often it was started."""
JOURNAL: pytest.StashKey[Journal] = pytest.StashKey()
"""On the config: what the run compared that does not pass, or that no report carries."""
LEFT_OUT: pytest.StashKey[str] = pytest.StashKey()
"""On a test item that we skipped: what is missing, a word of ``records.config.MISSING``, the level, or
``Reason.NOT_OFFERED``."""
PERF: pytest.StashKey[dict[str, Any]] = pytest.StashKey()
"""On the config: what was measured, as JSON values."""
ELAPSED: pytest.StashKey[Elapsed] = pytest.StashKey()
"""On the config: where the time of this process goes."""
LOADED: pytest.StashKey[object] = pytest.StashKey()
"""On the config: the subject loaded from options, where no fixture of the user's replaces it."""
UNMATCHED: pytest.StashKey[list[str]] = pytest.StashKey()
"""On the config: lines of the ledger of known failures that match no test."""
WATCHED: pytest.StashKey[bool] = pytest.StashKey()
"""On the config: whether the run's watch over the subject has begun."""
NOTES: pytest.StashKey[list[str]] = pytest.StashKey()
"""On the config: what else was noticed in this process, a sentence each."""


def uncaptured(config: pytest.Config) -> AbstractContextManager[None]:
    """Return a context in which the standard streams are the run's own, past pytest's capture."""
    capture = config.pluginmanager.get_plugin("capturemanager")
    return capture.global_and_fixture_disabled() if capture else nullcontext()


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


class KeptCase:
    """What was last made of a case, by name; where it could not be made, the error.

    One case is kept, for what is made of it may be large. A fixture of the session's would be kept by its case alone,
    and be another subject's where a folder of tests has a subject of its own.
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[tuple[object, ...], Any]] = {}

    def get(self, name: str, make: Callable[[], Any], case: object, *sides: object) -> Any:
        """Return what ``make`` returned for an equal ``case`` and these very ``sides``, or raise what it raised."""
        if not self._is_of(name, case, sides):
            self._made.pop(name, None)  # before the next is made, so that there is room for it
            self._made[name] = ((case, *sides), _made_or_error(make))
        made = self._made[name][1]
        if isinstance(made, Exception):
            raise made
        return made

    def answer(self, case: object, subject: object) -> Any:
        """Return what the ``subject`` answered when both sides were compared; None where they were not."""
        report = self._made[COMPARED][1] if self._is_of(COMPARED, case, (subject,)) else None
        return None if report is None or isinstance(report, Exception) else report.exchange.answer

    def _is_of(self, name: str, case: object, sides: tuple[object, ...]) -> bool:
        if name not in self._made:
            return False
        of_case, *of_sides = self._made[name][0]
        return of_case == case and all(one is other for one, other in zip(of_sides, sides, strict=False))


def _made_or_error(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:
        return error


COMPARED = "compared"
"""The name under which the report of both sides is kept."""
