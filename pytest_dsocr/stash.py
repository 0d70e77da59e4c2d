"""What the plugin keeps on pytest's config and on its items."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from pytest_dsocr.case import Case
    from pytest_dsocr.check import Check
    from pytest_dsocr.options import Config
    from pytest_dsocr.report.payload import CasePayload, RunPayload

CONFIG: pytest.StashKey[Config] = pytest.StashKey()
ALL_CASES: pytest.StashKey[list[Case]] = pytest.StashKey()
"""Of the config: every case that the options name."""
RUN: pytest.StashKey[RunPayload] = pytest.StashKey()
"""Of the config: what is held against what, once both are there."""
CASES: pytest.StashKey[dict[str, CasePayload]] = pytest.StashKey()
"""Of the config: the cases that were asked about, by id."""
CHECK: pytest.StashKey[Check] = pytest.StashKey()
"""Of a test: what it compared."""
LEFT_OUT: pytest.StashKey[str] = pytest.StashKey()
"""Of a test that we skipped: what is missing, a word of ``option_values.MISSING`` or :data:`NOT_OFFERED`."""
LOADED: pytest.StashKey[object] = pytest.StashKey()
"""Of the config: the subject that the options named; another is of a fixture of the user's own."""
TOLD: pytest.StashKey[BaseException] = pytest.StashKey()
"""Of the config: the error whose traceback was shown last; the other tests of its case need it no more."""
UNMATCHED: pytest.StashKey[list[str]] = pytest.StashKey()
"""Of the config: lines of the ledger of known failures that match no test."""
NOTES: pytest.StashKey[list[str]] = pytest.StashKey()
"""Of the config: sentences about what the subject did besides answering, each once."""
NOT_OFFERED = "not offered"


def leave_out(item: pytest.Item, missing: str, reason: str) -> NoReturn:
    """Skip ``item``, and note what was missing."""
    __tracebackhide__ = True
    item.stash[LEFT_OUT] = missing
    pytest.skip(reason)
