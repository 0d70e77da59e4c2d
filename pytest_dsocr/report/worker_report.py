"""Findings of a worker, sent with pytest's report of a test as builtin values: pytest-xdist carries no others."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pytest_dsocr.records.page_measures import PageMeasures
from pytest_dsocr.report.case_result import CaseResult, Fault
from pytest_dsocr.report.comparison_result import ComparisonResult
from pytest_dsocr.report.run_sides import RunSides


class Deselection(Struct, frozen=True):
    """Tests that were found and that a selection, or a hook, took out."""

    tests: int = 0
    of: int = 0
    by: list[str] = []
    """Options of pytest's that select, as they are typed; empty where a hook did it alone."""
    names: list[str] = []
    """The first of them."""
    listed: list[tuple[str, str, str, str]] = []
    """The cases that were to be compared here: id, page, preset and prompt; empty where tests have their own."""
    not_compared: list[str] = []
    """Listed cases without any comparison, once the run has ended."""


class ProcessTimes(Struct, frozen=True):
    """Time of one process by activity, up to the end of one of its tests."""

    worker: str
    """Name of the worker, such as ``gw1``; empty without workers."""
    device: str
    cases: int
    """Number of cases given to both sides."""
    elapsed_s: float
    """Since pytest was configured."""
    seconds: dict[str, float]
    """Seconds by activity; together they are all of them."""


class FailureOrigin(Struct, frozen=True):
    """Why ``dsocr_check`` failed a test, as far as that test shows it."""

    what: str
    """The comparison that breaks first."""
    why: str
    """Proven explanation; else what to check, if that is known."""
    mistakes: list[str]
    """The ids of the known mistakes that are proven to explain it."""
    described: str = ""
    """Description of the whole difference there, if it has one."""


class WorkerReport(Struct, kw_only=True, frozen=True):
    """Findings of one phase of a test. A default one means that the test had to compare, and did not."""

    case: CaseResult | None = None
    comparisons: list[ComparisonResult] = []
    looser: dict[str, tuple[int | float, int | float, str]] = {}
    """Limits that allowed more than the usual ones, these, and where they were given, by name."""
    left_out: str | None = None
    """Missing thing: a word of ``--dsocr-allow-missing``, a level such as ``L2``, or ``not offered``.

    It is ``known failure`` where the test declares one and is not run.
    """
    of_case: str = ""
    """The id of its case, also where that was not compared; empty where it has none."""
    notes: list[str] = []
    """Other notes so far, one sentence each."""
    page: PageMeasures | None = None
    """Sizes of the one page that it read without a case; None of other tests."""
    cause: FailureOrigin | None = None
    """None where it is not ``dsocr_check`` that failed it."""
    refused: str = ""
    """The preset or prompt that the subject does not offer, such as ``preset tiny``, if the test was skipped for it."""
    promised: bool = True
    """Whether the test was to compare: it asked for ``dsocr_check``, or is marked ``dsocr``."""
    elapsed: ProcessTimes | None = None
    reason: str | None = None
    """Why it was skipped."""
    fault: Fault | None = None
    perf: dict[str, Any] | None = None
    """Result of :meth:`pytest_dsocr.timing.run.PerfRun.to_json`, once times were taken."""
    run: RunSides | None = None

    def after(self, earlier: WorkerReport) -> WorkerReport:
        """Return the findings of this phase, with the fault, times and sides of an earlier one if it has none."""
        kept = {name: getattr(self, name) or getattr(earlier, name) for name in ("fault", "perf", "run")}
        return replace(self, **kept)


class JournalEntry(Struct, frozen=True):
    """Findings of a test, sent separately from the reports; see :class:`~pytest_dsocr.plugin.journal.Journal`."""

    test: str
    attempt: int
    """From 1 on; a test may be run again."""
    comparisons: list[ComparisonResult]
    """Comparisons that do not pass."""
    expected: bool
    """Whether this test is marked to fail, and did."""
