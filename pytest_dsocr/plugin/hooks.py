"""Hooks of the pytest plugin.

pytest loads this in every run. The code that compares, judges or reads options is imported only if an option of ours is
given or a test of ours is collected.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.plugin import stash
from pytest_dsocr.plugin.elapsed import RunElapsed
from pytest_dsocr.plugin.journal import Journal
from pytest_dsocr.plugin.markers import check_markers, is_ours, registration_lines
from pytest_dsocr.plugin.option import PREFIX
from pytest_dsocr.plugin.options import OPTIONS, OUT, SPREAD
from pytest_dsocr.plugin.run import Run

if TYPE_CHECKING:
    from pytest_dsocr.pages.named import Cases
    from pytest_dsocr.pages.page_list import BadPage
    from pytest_dsocr.records.case import Case
    from pytest_dsocr.records.config import Config

FIXTURES = "pytest_dsocr.plugin.fixtures"
pytest_plugins = (FIXTURES, *(f"pytest_dsocr.plugin.{name}" for name in ("side_fixtures", "stage_fixtures", "perf")))
HEADED: pytest.StashKey[bool] = pytest.StashKey()
"""On the config: whether the header is printed."""
NO_RUN = ("help", "version", "markers", "showfixtures", "show_fixtures_per_test")
"""Options of pytest that only show something."""
ABOVE_TEXT = ("L1", "L2", "L3")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    group = parser.getgroup(PREFIX, "compare an implementation under test (subject) with the vendor's")
    for option in OPTIONS:
        what: dict[str, Any] = {"action": "store_true"} if option.is_switch else {"metavar": option.metavar}
        if option.many:
            what |= {"action": "append"}
        group.addoption(option.flag, dest=option.ini, default=None, help=option.full_help, **what)
        kind: Any = "linelist" if option.many else "string"
        parser.addini(option.ini, f"{option.flag}: {option.full_help}", type=kind, default=None)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Mark the run's result as running before anything else happens.

    A worker's config has no ``workerinput`` yet.
    """
    is_worker = "PYTEST_XDIST_WORKER" in os.environ and sys.argv[0] == "-c"  # a run within a worker has a name
    if not is_worker:
        _start(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers and the collector of results, and resolve the options of a run that uses any."""
    elapsed = config.stash[stash.ELAPSED] = RunElapsed()
    config.pluginmanager.register(elapsed, "dsocr-elapsed")
    for line in registration_lines():
        config.addinivalue_line("markers", line)
    if _only_shows(config.option):  # help must work for those who gave a bad value
        return
    is_worker = hasattr(config, "workerinput")
    journal = config.stash[stash.JOURNAL] = Journal(getattr(config, "workerinput", {}).get("dsocr_journal"))
    if _start(config, config.option):
        _resolve(config)
    if not is_worker:
        config.add_cleanup(partial(journal.path.unlink, missing_ok=True))
        run = Run(config, config.stash.get(stash.OUT_FOLDER, None), config.stash.get(stash.IDENTITY, None))
        config.pluginmanager.register(run, "dsocr-run")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Show both sides in the header, if the options are resolved."""
    return _header(config)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Show the header now if only the collected tests have revealed a comparison."""
    return _header(config) if config.get_verbosity() >= 0 else []


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests that ask for a case or a page. A bad page is a parameter too, and fails its tests."""
    if _wants(metafunc, "dsocr_case"):
        named = _cases(metafunc.config)
        found: list[Case | BadPage] = [*named.good, *named.bad]
        metafunc.parametrize("dsocr_case", found, ids=[one.id for one in found], indirect=True, scope="session")
    elif _wants(metafunc, "dsocr_page"):
        named = _cases(metafunc.config)
        ids = {case.page: case.page.stem for case in named.good} | {page: page.id for page in named.bad}
        metafunc.parametrize("dsocr_page", list(ids), ids=ids.values(), indirect=True, scope="session")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Refuse bad markers and options with an error of collection.

    pytest-xdist sends these from its workers to the controller; it does not send a usage error.
    """
    try:
        made = yield
        for item in made if isinstance(made, list) else ():
            check_markers(item)
            if is_ours(item):
                _own(item.config)
                item.config.stash.setdefault(stash.COLLECTED, {})[item.nodeid] = None
    except (DsocrError, pytest.UsageError) as error:
        raise pytest.Collector.CollectError(str(error)) from error
    return made


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark known failures, and deselect tests above the run's level or of other shards."""
    if stash.CONFIG in config.stash:
        from pytest_dsocr.plugin.selection import select

        select(config, items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget an earlier try of the test, and skip it if it needs a missing GPU or the vendor's files."""
    if not is_ours(item):
        return
    from pytest_dsocr.plugin.loading import is_live

    stash.forget(item)
    own = _own(item.config)
    if item.get_closest_marker("dsocr_gpu"):
        import torch

        if not torch.cuda.is_available():
            stash.leave_out(item, "gpu", "needs a GPU that torch can use; run it where there is one")
    if item.get_closest_marker("dsocr_vendor") and not is_live(own):
        stash.leave_out(item, "vendor", "needs the vendor's Python files; name their folder: --dsocr-reference=FOLDER")


def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, str] | None:
    """Print no letter for a test above the subject's level. The totals and the summary count it."""
    left_out = getattr(report, "dsocr", {}).get("left_out")
    return ("not offered", "", "NOT OFFERED") if report.skipped and left_out in ABOVE_TEXT else None


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Register for reports after every conftest, and note our deselected tests."""
    if stash.COLLECTED in session.config.stash or any(map(is_ours, session.items)):
        from pytest_dsocr.plugin.reports import LastWord
        from pytest_dsocr.plugin.selection import deselected

        session.config.stash[stash.DESELECTED] = deselected(session)
        session.config.pluginmanager.register(LastWord(), "dsocr-last-word")
    return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of one case on one worker, unless the user has chosen another distribution than ``load``."""
    if stash.CONFIG not in config.stash or config.getoption("dist") != "load":
        return None
    from pytest_dsocr.plugin.case_scheduling import CaseScheduling

    return CaseScheduling(config, log)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Choose the number for ``dsocr compare``. Any other ``auto`` is left to pytest-xdist."""
    if SPREAD not in config.invocation_params.args:
        return None
    from pytest_dsocr.plugin.config import resolve, workers_for

    try:
        return workers_for(resolve(config))
    except pytest.UsageError:  # pytest_configure refuses the run, and says so
        return 0


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send the path of the run's journal to a worker."""
    node.workerinput["dsocr_journal"] = str(node.config.stash[stash.JOURNAL].path)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the ledger's unmatched lines and the deselected tests from a worker."""
    sent = getattr(node, "workeroutput", {})
    node.config.stash[stash.UNMATCHED] = sent.get("dsocr_unmatched", [])
    if left := sent.get("dsocr_left"):  # each worker collects everything
        from msgspec import convert

        from pytest_dsocr.report.worker_report import Deselection

        node.config.stash[stash.DESELECTED] = convert(left, Deselection)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the ledger's unmatched lines and the deselected tests from a worker to the controller."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["dsocr_unmatched"] = session.config.stash.get(stash.UNMATCHED, [])
        if left := session.config.stash.get(stash.DESELECTED, None):
            from msgspec import to_builtins

            session.config.workeroutput["dsocr_left"] = to_builtins(left)


def _only_shows(typed: Any) -> bool:
    """Return whether pytest is asked to show something and to run nothing."""
    return any(getattr(typed, name, None) for name in NO_RUN)


def _start(config: pytest.Config, typed: Any) -> bool:
    """Mark the run's result as running, and return whether a run uses any option.

    Options count on the command line and in the ini file. Of the environment only ``DSOCR_OUT`` counts, because other
    variables may be meant for other runs in the same shell.
    """
    is_used = any(OUT.in_environment()) or any(
        getattr(typed, option.ini, None) is not None or config.getini(option.ini) is not None for option in OPTIONS
    )
    if is_used and not _only_shows(typed):
        from pytest_dsocr.plugin.config import start

        start(config, typed)
    return is_used


def _own(config: pytest.Config) -> Config:
    from pytest_dsocr.plugin.config import own_config

    return own_config(config)


def _cases(config: pytest.Config) -> Cases:
    from pytest_dsocr.plugin.config import cases_of

    return cases_of(config)


def _header(config: pytest.Config) -> list[str]:
    """Return the header once, as soon as the options are resolved."""
    if stash.CONFIG not in config.stash or HEADED in config.stash:
        return []
    from pytest_dsocr.plugin.header import header

    config.stash[HEADED] = True
    return header(config)


def _resolve(config: pytest.Config) -> None:
    """Resolve the options. A bad value may come from an ini file that pytest chose by mistake: show the notes."""
    try:
        if _own(config).shard:  # one that has no page is a bad value as well
            _cases(config)
    except (DsocrError, pytest.UsageError) as error:
        from pytest_dsocr.plugin.config import refused

        refused(config, error)
        raise pytest.UsageError("\n".join([*map(str, error.args), *config.stash.get(stash.NOTES, [])])) from error


def _wants(metafunc: pytest.Metafunc, name: str) -> bool:
    """Return whether a test uses our fixture, directly or through an override, and does not parametrize it itself."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        if name in (map(str.strip, names.split(",")) if isinstance(names, str) else names):
            return False
    definitions = reversed(metafunc._arg2fixturedefs.get(name, ()))
    base = next((one for one in definitions if name not in one.argnames), None)
    return base is not None and base.func.__module__ == FIXTURES
