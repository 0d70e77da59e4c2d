"""Fixtures: cases, the answers of both sides, and their comparison.

Fixtures of both sides are in :mod:`~pytest_dsocr.plugin.side_fixtures`, and those of single stages in
:mod:`~pytest_dsocr.plugin.stage_fixtures`.

pytest loads this in every run, so fixtures import their needs inside. Fixtures of session scope are made once in each
worker. Both sides' answers to a case are kept until the next case, so a test must not change them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.plugin.markers import within_markers
from pytest_dsocr.plugin.stash import CASES, CHECK, COMPARED, ELAPSED, LOADED, NAMED, RUN, KeptCase
from pytest_dsocr.report.parts import COMPARING

if TYPE_CHECKING:
    from pytest_dsocr.compare.case import CaseReport, CaseRun
    from pytest_dsocr.compare.tolerances import Tolerances
    from pytest_dsocr.plugin.check import Check
    from pytest_dsocr.records.case import Case
    from pytest_dsocr.records.config import Config
    from pytest_dsocr.records.reference_result import ReferenceResult
    from pytest_dsocr.records.subject_result import SubjectResult
    from pytest_dsocr.reference.protocol import Reference
    from pytest_dsocr.run.resources import RunResources


@pytest.fixture(scope="session")
def dsocr_config(pytestconfig: pytest.Config) -> Config:
    """Return the run's options, resolved."""
    from pytest_dsocr.plugin.config import own_config

    return own_config(pytestconfig)


@pytest.fixture(scope="session")
def dsocr_page(request: pytest.FixtureRequest) -> Path:
    """Return a page: each of ``--dsocr-pages`` once. If it cannot be opened, an error gives the reason."""
    from pytest_dsocr.pages.named import checked

    return checked(request.param)


@pytest.fixture(scope="session")
def dsocr_case(request: pytest.FixtureRequest) -> Case:
    """Return a case: each page, preset and prompt once. If the page cannot be opened, an error gives the reason."""
    from pytest_dsocr.pages.named import checked_case

    return checked_case(request.param)


@pytest.fixture
def dsocr_exchange(_dsocr_compared: CaseReport) -> CaseRun:
    """Return both sides' answers to the case, computed once. If the subject failed, raise its error."""
    _dsocr_compared.exchange.answer.whole()
    return _dsocr_compared.exchange


@pytest.fixture
def _dsocr_compared(
    request: pytest.FixtureRequest,
    dsocr_case: Case,
    dsocr_subject: Any,
    dsocr_reference: Reference,
    dsocr_config: Config,
    _dsocr_kept: KeptCase,
    _dsocr_resources: RunResources,
) -> CaseReport:
    """Compare the case once within the run's limits, as far as the subject got; see ``run.case.run_case``."""

    def compare() -> CaseReport:
        from pytest_dsocr.plugin.loading import waiting_for
        from pytest_dsocr.report.run_sides import RunSides
        from pytest_dsocr.run.case import run_case
        from pytest_dsocr.subjects.protocol import level_of
        from pytest_dsocr.subjects.readings import read_again

        reported = _reported(request, dsocr_config)
        request.config.stash[RUN] = RunSides.of(reported, dsocr_reference, level_of(dsocr_subject))
        named = request.config.stash.get(NAMED, None)
        place = named.good.index(dsocr_case) if named and dsocr_case in named.good else 0
        elapsed = request.config.stash[ELAPSED]
        sides, again = (dsocr_subject, dsocr_reference), None
        with ExitStack() as waiting:
            if (times := reported.repeat) > 1:
                shown = waiting.enter_context(waiting_for(f"{times} readings of {dsocr_case.id}", request.config))
                cases = named.good if named else ()
                again = partial(read_again, dsocr_subject, dsocr_case, cases, times, shown.on_progress)
            report, result = run_case(dsocr_case, place, *sides, reported, elapsed, _dsocr_resources, again)
        request.config.stash.setdefault(CASES, {})[dsocr_case.id] = result
        return report

    return _dsocr_kept.get(COMPARED, compare, dsocr_case, dsocr_subject, dsocr_reference)


@pytest.fixture
def dsocr_limits(
    request: pytest.FixtureRequest,
    dsocr_config: Config,
    dsocr_subject: Any,
    dsocr_reference: Reference,
    _dsocr_resources: RunResources,
) -> Tolerances:
    """Return the limits of a difference, by both sides' dtypes and keys, the run's options and the test's marker."""
    from pytest_dsocr.run.limits import limits_of

    limits = limits_of(dsocr_config, dsocr_subject, dsocr_reference, _dsocr_resources.key)
    return within_markers(limits, request.node)


@pytest.fixture
def dsocr_report(
    request: pytest.FixtureRequest, _dsocr_compared: CaseReport, dsocr_limits: Tolerances, _dsocr_kept: KeptCase
) -> CaseReport:
    """Return every comparison of the case within the test's limits, up to an error of the subject.

    The case is read once. A test with its own limits only judges it again.
    """
    if dsocr_limits == _dsocr_compared.limits:
        return _dsocr_compared
    from pytest_dsocr.compare.case import judge

    with request.config.stash[ELAPSED].on(COMPARING):
        return _dsocr_kept.get(
            "judged", lambda: judge(_dsocr_compared.exchange, dsocr_limits), dsocr_limits, _dsocr_compared
        )


@pytest.fixture
def dsocr_check(request: pytest.FixtureRequest, dsocr_config: Config) -> Check:
    """Compare and count: ``dsocr_check(dsocr_report, "boxes")``, or ``dsocr_check(comparisons)``."""
    from pytest_dsocr.plugin.check import Check

    check = request.node.stash[CHECK] = Check(request, _reported(request, dsocr_config))
    return check


@pytest.fixture
def dsocr_reading(dsocr_case: Case, dsocr_subject: Any, _dsocr_kept: KeptCase) -> SubjectResult:
    """Return the subject's text, spans and boxes, without a reference.

    If both sides have answered to the case already, return the subject's answer.
    """
    from pytest_dsocr.subjects.readings import read_alone, reading_of

    if (answer := _dsocr_kept.answer(dsocr_case, dsocr_subject)) is not None:
        return reading_of(answer)
    return _dsocr_kept.get("read", lambda: read_alone(dsocr_subject, dsocr_case), dsocr_case, dsocr_subject)


@pytest.fixture
def dsocr_golden(_dsocr_compared: CaseReport) -> ReferenceResult:
    """Return the reference's result for the case: tokens, best logits, spans, boxes, files."""
    return _dsocr_compared.exchange.expected


@pytest.fixture
def dsocr_snapshot(
    request: pytest.FixtureRequest, dsocr_config: Config, dsocr_subject: Any, _dsocr_resources: RunResources
) -> Any:
    """Return syrupy's fixture for the subject's accepted state: ``assert dsocr_snapshot == value``."""
    if not request.config.pluginmanager.has_plugin("syrupy"):
        raise DsocrError("dsocr_snapshot needs syrupy; install it, or add -p syrupy where plugins are not autoloaded")
    from pytest_dsocr.plugin.snapshots import snapshot_extension
    from pytest_dsocr.run.limits import own_limits

    limits = within_markers(own_limits(dsocr_config, dsocr_subject), request.node)
    option = request.config.option
    may_write = option.update_snapshots or option.update_new_snapshots_only
    extension = snapshot_extension(_reported(request, dsocr_config), _dsocr_resources.key, limits, may_write=may_write)
    return request.getfixturevalue("snapshot").use_extension(extension)


@pytest.fixture(scope="session")
def _dsocr_resources(dsocr_config: Config) -> Iterator[RunResources]:
    from pytest_dsocr.run.resources import RunResources

    with closing(RunResources.of(dsocr_config)) as resources:
        yield resources


@pytest.fixture(scope="session")
def _dsocr_kept() -> KeptCase:
    return KeptCase()


def _reported(request: pytest.FixtureRequest, config: Config) -> Config:
    """Return the config for reports. It names a subject from the user's own fixture by its type."""
    if "dsocr_subject" not in request.fixturenames:
        return config
    subject = request.getfixturevalue("dsocr_subject")
    if request.config.stash.get(LOADED, None) is subject:
        return config
    if config.isolate:
        from pytest_dsocr.subjects.calls import current

        current().note(
            "--dsocr-isolate does nothing for a subject that comes from a fixture of your own; name it by an option"
        )
    return replace(config, subject=f"{type(subject).__module__}:{type(subject).__qualname__}")
