"""The fixtures: a subject, a reference, cases, what both sides answer, and the comparison of the two.

Those of single stages are in :mod:`~pytest_dsocr.plugin.stage_fixtures`.

What a fixture uses is imported inside it, for pytest loads this in every run. Fixtures of session scope are made once
in each worker. What both sides answer to a case is kept until the next case, so no test may change it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.plugin.markers import arguments_of
from pytest_dsocr.plugin.stash import CASES, CHECK, COMPARED, ELAPSED, LOADED, NAMED, RUN, KeptCase, leave_out
from pytest_dsocr.report.parts import COMPARING

if TYPE_CHECKING:
    from pytest_dsocr.compare.case import CaseReport, CaseRun
    from pytest_dsocr.compare.tolerances import Tolerances
    from pytest_dsocr.plugin.check import Check
    from pytest_dsocr.records.case import Case
    from pytest_dsocr.records.config import Config, Level
    from pytest_dsocr.records.reference_result import ReferenceResult
    from pytest_dsocr.records.subject_result import SubjectResult
    from pytest_dsocr.reference.protocol import Reference
    from pytest_dsocr.run.resources import RunResources


@pytest.fixture(scope="session")
def dsocr_config(pytestconfig: pytest.Config) -> Config:
    """The run's options, resolved."""
    from pytest_dsocr.plugin.config import own_config

    return own_config(pytestconfig)


@pytest.fixture(scope="session")
def dsocr_subject(request: pytest.FixtureRequest, dsocr_config: Config) -> Iterator[Any]:
    """The implementation under test (subject), loaded once in each worker; see ``subjects.protocol``.

    To name one for a repository, set ``dsocr_subject`` in its ini file, or override this fixture.
    """
    with request.config.stash[ELAPSED].on("loading the subject"):
        import pytest_dsocr.run.case  # noqa: F401 - brings torch
        from pytest_dsocr.base.process import freeze_gc, share_threads
        from pytest_dsocr.plugin.loading import waiting_for
        from pytest_dsocr.subjects.loading import close_subject, open_subject
        from pytest_dsocr.subjects.protocol import level_of

        freeze_gc()
    own = dsocr_config
    what = f"the subject, {own.subject} on {own.checkpoint}, {own.device}, {own.dtype}"
    share_threads(_workers(request.config))
    loading = request.config.stash[ELAPSED].on("loading the subject")
    with _or_stop(request.session, "subject"), waiting_for(what, request.config), loading:
        limit_s = own.subject_time_limit if own.isolate else None
        subject = open_subject(own.subject, own.setup, limit_s, own.start_limit)
        if (promised := own.level) is not None and (offered := level_of(subject)) < promised:
            raise DsocrError(f"{own.subject} offers {offered}, the run promises {promised}; promise {offered}")
    request.config.stash[LOADED] = subject
    yield subject
    close_subject(subject)


@pytest.fixture
def dsocr_level(dsocr_subject: Any) -> Level:
    """The level that the subject offers, L0 to L3."""
    from pytest_dsocr.subjects.protocol import level_of

    return level_of(dsocr_subject)


@pytest.fixture(scope="session")
def dsocr_reference(request: pytest.FixtureRequest, dsocr_config: Config) -> Iterator[Reference]:
    """What the subject is compared with: recordings of the vendor's code, or that code live.

    It is live if ``--dsocr-reference`` names the folder of the vendor's files. With ``--dsocr-reference=engine`` the
    engine answers for the cases that no recording holds.
    """
    from pytest_dsocr.base.process import share_threads
    from pytest_dsocr.plugin.loading import waiting_for
    from pytest_dsocr.run.case import reference_of

    share_threads(_workers(request.config))
    what = f"the reference, {dsocr_config.reference or 'recorded'}, of {dsocr_config.checkpoint}"
    loading = request.config.stash[ELAPSED].on("loading the reference")
    with _or_stop(request.session, "reference"), waiting_for(what, request.config) as waiting, loading:
        reference = reference_of(dsocr_config, waiting.on_progress)
    yield reference
    reference.close()


@pytest.fixture(scope="session")
def dsocr_page(request: pytest.FixtureRequest) -> Path:
    """Each page of ``--dsocr-pages`` in turn; a page that cannot be opened is an error that says why."""
    from pytest_dsocr.pages.named import checked

    return checked(request.param)


@pytest.fixture(scope="session")
def dsocr_case(request: pytest.FixtureRequest) -> Case:
    """Each page in each preset with each prompt, in turn; a page that cannot be opened is an error that says why."""
    from pytest_dsocr.pages.named import checked_case

    return checked_case(request.param)


@pytest.fixture
def dsocr_exchange(_dsocr_compared: CaseReport) -> CaseRun:
    """What both sides answered to the case, asked once; raises the subject's error if one ended its answer."""
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
    """The case compared within the run's own limits, once, as far as the subject got; see ``run.case.run_case``."""

    def compare() -> CaseReport:
        from pytest_dsocr.plugin.loading import waiting_for
        from pytest_dsocr.report.payload import of_run
        from pytest_dsocr.run.case import run_case
        from pytest_dsocr.subjects.protocol import level_of
        from pytest_dsocr.subjects.readings import read_again

        reported = _reported(request, dsocr_config)
        request.config.stash[RUN] = of_run(reported, dsocr_reference, level_of(dsocr_subject))
        named = request.config.stash.get(NAMED, None)
        place = named.good.index(dsocr_case) if named and dsocr_case in named.good else 0
        elapsed = request.config.stash[ELAPSED]
        sides, again = (dsocr_subject, dsocr_reference), None
        with ExitStack() as waiting:
            if (times := reported.repeat) > 1:
                shown = waiting.enter_context(waiting_for(f"{times} readings of {dsocr_case.id}", request.config))
                cases = named.good if named else ()
                again = partial(read_again, dsocr_subject, dsocr_case, cases, times, shown.on_progress)
            report, payload = run_case(dsocr_case, place, *sides, reported, elapsed, _dsocr_resources, again)
        request.config.stash.setdefault(CASES, {})[dsocr_case.id] = payload
        return report

    report: CaseReport = _dsocr_kept.get(COMPARED, compare, dsocr_case, dsocr_subject, dsocr_reference)
    return report


@pytest.fixture
def dsocr_limits(
    request: pytest.FixtureRequest,
    dsocr_config: Config,
    dsocr_subject: Any,
    dsocr_reference: Reference,
    _dsocr_resources: RunResources,
) -> Tolerances:
    """How far the two sides may differ: by their dtypes and keys, the run's options, and the test's marker."""
    from pytest_dsocr.run.case import limits_of

    limits = limits_of(dsocr_config, dsocr_subject, dsocr_reference, _dsocr_resources.key)
    return _marked(limits, request.node)


@pytest.fixture
def dsocr_report(
    request: pytest.FixtureRequest, _dsocr_compared: CaseReport, dsocr_limits: Tolerances, _dsocr_kept: KeptCase
) -> CaseReport:
    """Every comparison of the case within the test's limits, up to an error of the subject.

    The case is compared once; it is judged anew only for a test with limits of its own.
    """
    if dsocr_limits == _dsocr_compared.limits:
        return _dsocr_compared
    from pytest_dsocr.compare.case import judge

    with request.config.stash[ELAPSED].on(COMPARING):
        report: CaseReport = _dsocr_kept.get(
            "judged", lambda: judge(_dsocr_compared.exchange, dsocr_limits), dsocr_limits, _dsocr_compared
        )
        return report


@pytest.fixture
def dsocr_check(request: pytest.FixtureRequest, dsocr_config: Config) -> Check:
    """Compare and count: ``dsocr_check(dsocr_report, "boxes")``, or ``dsocr_check(comparisons)``."""
    from pytest_dsocr.plugin.check import Check

    names = request.fixturenames
    reference = request.getfixturevalue("dsocr_reference") if "dsocr_reference" in names else None
    usual = None
    if reference is not None and "dsocr_subject" in names:
        from pytest_dsocr.run.case import limits_between

        key = request.getfixturevalue("_dsocr_resources").key
        usual = limits_between(request.getfixturevalue("dsocr_subject"), reference, key)
    check = Check(request.node, _reported(request, dsocr_config), reference, usual)
    request.node.stash[CHECK] = check
    return check


@pytest.fixture
def dsocr_reading(dsocr_case: Case, dsocr_subject: Any, _dsocr_kept: KeptCase) -> SubjectResult:
    """What the subject reads: text, spans and boxes. Needs no reference.

    If both sides were asked about the case already, this is what the subject answered then.
    """
    from pytest_dsocr.subjects.follow import read_alone, reading_of

    if (answer := _dsocr_kept.answer(dsocr_case, dsocr_subject)) is not None:
        return reading_of(answer)
    read: SubjectResult = _dsocr_kept.get(
        "read", lambda: read_alone(dsocr_subject, dsocr_case), dsocr_case, dsocr_subject
    )
    return read


@pytest.fixture
def dsocr_golden(_dsocr_compared: CaseReport) -> ReferenceResult:
    """What the reference did with the case: tokens, best logits, spans, boxes, files."""
    return _dsocr_compared.exchange.expected


@pytest.fixture
def dsocr_snapshot(
    request: pytest.FixtureRequest, dsocr_config: Config, dsocr_subject: Any, _dsocr_resources: RunResources
) -> Any:
    """A snapshot of the subject's own accepted state: ``assert dsocr_snapshot == value`` (syrupy's fixture)."""
    if not request.config.pluginmanager.has_plugin("syrupy"):
        raise DsocrError("dsocr_snapshot needs syrupy; install it, or add -p syrupy where plugins are not autoloaded")
    from pytest_dsocr.plugin.snapshots import snapshot_extension
    from pytest_dsocr.run.case import own_limits

    limits = _marked(own_limits(dsocr_config, dsocr_subject), request.node)
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


@pytest.fixture
def _dsocr_level_needed(request: pytest.FixtureRequest, dsocr_level: Level) -> None:
    """Skip a test whose level the subject does not offer; the plugin adds this to tests that are marked."""
    needed = arguments_of(request.node.get_closest_marker("dsocr_level"))
    if dsocr_level < needed:
        reason = f"needs {needed} ({needed.meaning}), the subject offers {dsocr_level} ({dsocr_level.meaning})"
        leave_out(request.node, str(needed), reason)


@contextmanager
def _or_stop(session: pytest.Session, side: str) -> Iterator[None]:
    """Stop the run if a side cannot be opened: every other test would fail in the same way."""
    try:
        yield
    except DsocrError:
        session.shouldfail = f"dsocr: without its {side} nothing can be compared"
        raise


def _workers(config: pytest.Config) -> int:
    return int(getattr(config, "workerinput", {}).get("workercount", 1))


def _reported(request: pytest.FixtureRequest, config: Config) -> Config:
    """Return the config for reports. A subject that comes from the user's own fixture is named by its type."""
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


def _marked(limits: Tolerances, test: pytest.Item) -> Tolerances:
    """Apply the tolerances of the test's markers, the nearest last."""
    for mark in reversed(list(test.iter_markers("dsocr"))):
        limits = limits.but(arguments_of(mark))
    return limits
