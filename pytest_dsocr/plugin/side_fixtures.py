"""Fixtures of both sides: the subject and the reference, opened once in each worker, and the level of the subject.

pytest loads this in every run, so fixtures import their needs inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.plugin.markers import arguments_of
from pytest_dsocr.plugin.stash import ELAPSED, LOADED, NAMED, leave_out
from pytest_dsocr.report.parts import COMPARING

if TYPE_CHECKING:
    from pytest_dsocr.records.config import Config, Level
    from pytest_dsocr.reference.protocol import Reference
    from pytest_dsocr.run.resources import RunResources


@pytest.fixture(scope="session")
def dsocr_subject(request: pytest.FixtureRequest, dsocr_config: Config) -> Iterator[Any]:
    """Load the implementation under test (subject) once in each worker; see ``subjects.protocol``.

    To choose the subject of a repository, set ``dsocr_subject`` in its ini file, or override this fixture.
    """
    with request.config.stash[ELAPSED].on("loading the subject"):
        import pytest_dsocr.run.case  # noqa: F401 - brings torch
        from pytest_dsocr.base.process import freeze_gc, share_threads
        from pytest_dsocr.plugin.loading import waiting_for
        from pytest_dsocr.run.references import answers_of
        from pytest_dsocr.subjects.calls import current
        from pytest_dsocr.subjects.loading import close_subject, open_subject
        from pytest_dsocr.subjects.protocol import level_of

        freeze_gc()
    own = dsocr_config
    if own.reference == "engine" and "dsocr_reference" in request.fixturenames:
        with suppress(Exception, pytest.fail.Exception, pytest.skip.Exception):  # the test itself meets these again
            request.getfixturevalue("dsocr_reference")  # its process loads meanwhile
    what = f"the subject, {own.subject} on {own.checkpoint}, {own.device}, {own.dtype}"
    share_threads(_workers(request.config))
    loading = request.config.stash[ELAPSED].on("loading the subject")
    with _or_stop(request.session, "subject"), waiting_for(what, request.config), loading:
        limit_s = own.subject_time_limit if own.isolate else None
        current().hidden = answers_of(own) if own.isolate else ()
        subject = open_subject(own.subject, own.setup, limit_s, own.start_limit)
        if (promised := own.level) is not None and (offered := level_of(subject)) < promised:
            raise DsocrError(f"{own.subject} offers {offered}, the run promises {promised}; promise {offered}")
    request.config.stash[LOADED] = subject
    _check_range(request, subject, own)
    yield subject
    close_subject(subject)


@pytest.fixture
def dsocr_level(dsocr_subject: Any) -> Level:
    """Return the level that the subject offers, L0 to L3."""
    from pytest_dsocr.subjects.protocol import level_of

    return level_of(dsocr_subject)


@pytest.fixture(scope="session")
def dsocr_reference(request: pytest.FixtureRequest, dsocr_config: Config) -> Iterator[Reference]:
    """Open the reference: recordings of the vendor's code, or that code live.

    It is live if ``--dsocr-reference`` names the folder of the vendor's files. With ``--dsocr-reference=engine`` the
    engine answers for cases without a recording.
    """
    from pytest_dsocr.base.process import share_threads
    from pytest_dsocr.plugin.config import cases_of
    from pytest_dsocr.plugin.loading import waiting_for
    from pytest_dsocr.reference.engine import EngineReference
    from pytest_dsocr.run.references import reference_of

    share_threads(_workers(request.config))
    what = f"the reference, {dsocr_config.reference or 'recorded'}, of {dsocr_config.checkpoint}"
    loading = request.config.stash[ELAPSED].on("loading the reference")
    with _or_stop(request.session, "reference"), waiting_for(what, request.config) as waiting, loading:
        reference = reference_of(dsocr_config, waiting.on_progress)
        if isinstance(reference, EngineReference):
            is_timed = any(item.get_closest_marker("dsocr_perf") for item in request.session.items)
            ahead = reference.wanted.device.startswith("cuda") and _workers(request.config) == 1 and not is_timed
            reference.start_for(cases_of(request.config).good, ahead=ahead)
    yield reference
    reference.close()


@pytest.fixture
def _dsocr_level_needed(request: pytest.FixtureRequest, dsocr_level: Level) -> None:
    """Skip a test if the subject does not offer its level. The plugin adds this fixture to marked tests."""
    needed = arguments_of(request.node.get_closest_marker("dsocr_level"))
    if dsocr_level < needed:
        reason = f"needs {needed} ({needed.meaning}), the subject offers {dsocr_level} ({dsocr_level.meaning})"
        leave_out(request.node, str(needed), reason)


def _check_range(request: pytest.FixtureRequest, subject: Any, own: Config) -> None:
    """Stop a run that compares in float16, if its first page cannot be judged there; see ``run.half``."""
    from pytest_dsocr.records.subject_result import HALF
    from pytest_dsocr.run.limits import dtype_of

    named = request.config.stash.get(NAMED, None)
    compares = any("dsocr_reference" in getattr(item, "fixturenames", ()) for item in request.session.items)
    if dtype_of(subject, own.dtype) != HALF or not compares or named is None or not named.good:
        return
    resources: RunResources = request.getfixturevalue("_dsocr_resources")
    with request.config.stash[ELAPSED].on(COMPARING), _or_stop(request.session, "reference"):
        computed = own.reference_key[1] if own.reference == "engine" else ""
        resources.half.check_page(named.good[0], subject, computed)


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
