"""``dsocr_check``: records and counts comparisons, and fails the test if one does not pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pytest

from pytest_dsocr.base.words import entry
from pytest_dsocr.compare.verdict import LEFT_OUT, Comparison, Reason
from pytest_dsocr.plugin import stash
from pytest_dsocr.plugin.markers import within_markers

if TYPE_CHECKING:
    from pytest_dsocr.compare.case import CaseReport
    from pytest_dsocr.compare.tolerances import Tolerances
    from pytest_dsocr.records.config import Config
    from pytest_dsocr.records.page_measures import PageMeasures
    from pytest_dsocr.reference.protocol import Reference


class Check:
    """Comparisons of one test, with the reference and the limits of those sides that the test uses."""

    def __init__(self, request: pytest.FixtureRequest, config: Config) -> None:
        names, self.item, self.config = request.fixturenames, request.node, config
        self.reference = request.getfixturevalue("dsocr_reference") if "dsocr_reference" in names else None
        self.usual: Tolerances | None = None
        """Limits without those of the run and of the test; None without two sides."""
        self._looser_of_run: Mapping[str, tuple[float, float]] = {}
        if "dsocr_subject" in names:
            limits = _usual_limits(request, config, self.reference)
            self.usual = limits if self.reference else None
            self._looser_of_run = within_markers(limits.but(config.tolerances), self.item).looser_than(limits)
        self.looser: dict[str, tuple[float, float, str]] = {}
        """Limits wider than the usual ones, by name, each with the usual one and its origin."""
        self.page: PageMeasures | None = None
        """Sizes of the page that the test reads without a case."""
        self.made: list[Comparison] = []
        self.reported = 0
        """Number of comparisons in the test's reports so far."""
        self.is_over = False
        """Whether the test's last report is made. Later comparisons of its threads go into the journal."""
        self.passed = False
        """Whether the test's body passed."""
        self.attempt = self.item.stash.get(stash.ATTEMPT, 1)

    def __call__(self, found: CaseReport | Iterable[Comparison], *stages: str) -> None:
        """Record comparisons, and fail the test if one does not pass.

        If an error of the subject prevented a comparison, that error is raised and there is no verdict.

        Args:
            found: a case's report, or any comparisons.
            *stages: stages to check, such as ``projector`` or ``boxes``; default: all.
        """
        __tracebackhide__ = True
        report, given = (None, found) if isinstance(found, Iterable) else (found, found.comparisons)
        comparisons = [one for one in given if not stages or one.stage in stages]
        self.made += comparisons
        failing = [one for one in comparisons if not one.passes]
        if for_journal := comparisons if self.is_over else failing:
            self.item.config.stash[stash.JOURNAL].add(self.item.nodeid, self.attempt, for_journal)
        if report is None:
            self._note_looser(self._looser_of_run)
        elif self.usual:
            self._note_looser(report.limits.looser_than(self.usual))
        if stages:
            from pytest_dsocr.compare.observations import STAGES

            names = dict.fromkeys([*STAGES, *(one.stage for one in given)])
            if unknown := [stage for stage in stages if stage not in names]:
                message = f"dsocr_check knows no stage {', '.join(map(repr, unknown))}"
                pytest.fail("\n".join([message, *entry("stages", ", ".join(names))]), pytrace=False)
        if not comparisons:
            of = f"found no comparison of {', '.join(stages)}" if stages else "was given no comparison"
            pytest.fail(f"dsocr_check {of}", pytrace=False)
        if error := next((one.lost_to for one in comparisons if one.lost_to), None):
            raise error.with_traceback(None)  # each test would add its own to it
        if all(one.reason in LEFT_OUT for one in comparisons):
            what = ", ".join(stages or dict.fromkeys(one.what for one in comparisons))
            stash.leave_out(self.item, Reason.NOT_OFFERED, f"{what}: {Reason.NOT_OFFERED} by the subject")
        if failing:
            raise self._failure(failing, report)

    def _note_looser(self, looser: Mapping[str, tuple[float, float]]) -> None:
        own, by = self.config.tolerances, self.config.given_by.get("tolerances", "")
        for name, pair in looser.items():
            is_of_run = own.get("seam" if name == "vision" else name) == pair[0]
            self.looser[name] = (*pair, by if is_of_run else "")

    def _failure(self, failing: list[Comparison], report: CaseReport | None) -> BaseException:
        from pytest_dsocr.plugin.config import typed_options
        from pytest_dsocr.report.failure import TestFailure
        from pytest_dsocr.report.words import rerun

        made = TestFailure(failing, report, self.config)
        again = rerun(self.item.nodeid, typed_options(self.item.config), self.item.config.rootpath)
        failure = pytest.fail.Exception(made.text(self.reference, again), pytrace=False)
        vars(failure)["dsocr"] = made.origin
        return failure


def _usual_limits(request: pytest.FixtureRequest, config: Config, reference: Reference | None) -> Tolerances:
    """Return the limits without the run's options: between both sides, or of the subject with itself."""
    from pytest_dsocr.compare.tolerances import tolerances
    from pytest_dsocr.run.limits import dtype_of, limits_between

    subject = request.getfixturevalue("dsocr_subject")
    if reference is None:
        return tolerances(dtype_of(subject, config.dtype))
    return limits_between(subject, reference, request.getfixturevalue("_dsocr_resources").key)
