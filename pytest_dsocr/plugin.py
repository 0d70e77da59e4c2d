"""The pytest plugin's hooks. Import stays light: nothing heavier than pytest is loaded here."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import pytest_dsocr
from pytest_dsocr.errors import DsocrError
from pytest_dsocr.markers import arguments_of, check_markers, is_ours, registration_lines
from pytest_dsocr.options import Config, add_options, resolve
from pytest_dsocr.outcome import amend
from pytest_dsocr.report.words import plain
from pytest_dsocr.run import Run
from pytest_dsocr.scheduling import on_own_gpu
from pytest_dsocr.stash import ALL_CASES, CONFIG, NOTES, UNMATCHED, leave_out
from pytest_dsocr.subjects.loading import level_before_loading
from pytest_dsocr.subjects.protocol import Level
from pytest_dsocr.subjects.watch import begin, end
from pytest_dsocr.vendor.files import FILES
from pytest_dsocr.xfails import read_ledger

if TYPE_CHECKING:
    from pytest_dsocr.case import Case

FIXTURES = "pytest_dsocr.fixtures"
pytest_plugins = (FIXTURES,)
OFFERED: pytest.StashKey[Level | None] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Resolve the options, and register the markers and what gathers a run's results."""
    for line in registration_lines():
        config.addinivalue_line("markers", line)
    if config.option.help or config.option.markers:  # asked for by whoever gave a bad value, as like as not
        return
    watch = begin(config.stash.setdefault(NOTES, []))
    config.add_cleanup(partial(end, watch))
    own = on_own_gpu(resolve(config), getattr(config, "workerinput", {}).get("workerid", ""))
    watch.limit(own.subject_time_limit, last_resort=not _is_timed(config))
    config.stash[CONFIG] = own
    config.stash[OFFERED] = level_before_loading(own.subject, may_import=not own.isolate)
    _check_goldens(config, own)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Run(config), "dsocr-run")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is compared with what, under which key, and what the subject offers."""
    own, offered = config.stash[CONFIG], config.stash[OFFERED]
    levels = ", ".join(f"{level} {level.meaning}" for level in Level if offered is not None and level <= offered)
    how = "live" if _is_vendors(own) else "recorded"
    reference = f"{own.reference_device}, {own.reference_dtype}, {own.reference_attention}"
    return [
        f"dsocr: pytest-dsocr {pytest_dsocr.__version__} from {pytest_dsocr.__path__[0]}",
        f"dsocr: subject {own.subject} on {own.checkpoint}, {own.device}, {own.dtype}, {own.attention}; offers "
        f"{levels or 'what it says when it is made'}",
        f"dsocr: reference {how}, {own.reference or own.golden / 'vendor'}, {reference}; "
        f"pages {' '.join(own.pages)}, {' '.join(own.presets)}, {' '.join(map(plain, own.prompts))}",
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test that asks for a case, or a page, every one that the options name."""
    if _wants(metafunc, "dsocr_case"):
        cases = _cases(metafunc.config)
        metafunc.parametrize("dsocr_case", cases, ids=[case.id for case in cases], indirect=True, scope="session")
    elif _wants(metafunc, "dsocr_page"):
        pages = list(dict.fromkeys(case.page for case in _cases(metafunc.config)))
        metafunc.parametrize("dsocr_page", pages, ids=[page.stem for page in pages], indirect=True, scope="session")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Refuse markers that do not fit, and pages that are not to be had.

    As errors of collection, in words: those pytest-xdist sends from its workers, and a usage error it does not.
    """
    try:
        made = yield
        for item in made if isinstance(made, list) else ():
            check_markers(item)
    except DsocrError as error:
        raise pytest.Collector.CollectError(str(error)) from error
    return made


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is known to fail, and leave out what the run's level leaves out."""
    own = config.stash[CONFIG]
    if own.xfails:
        config.stash[UNMATCHED] = list(read_ledger(own.xfails).apply(items))
    above = [item for item in items if own.level is not None and (_level(item) or Level.TEXT) > own.level]
    if above:
        config.hook.pytest_deselected(items=above)
        items[:] = [item for item in items if item not in above]
    for item in items:
        if _level(item) is not None and isinstance(item, pytest.Function):
            item.fixturenames.insert(0, "_dsocr_level_needed")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what needs a GPU, or the vendor's files, where there is none."""
    if not is_ours(item):
        return
    own = item.config.stash[CONFIG]
    if item.get_closest_marker("dsocr_gpu") and not _has_gpu():
        leave_out(item, "gpu", "needs a GPU that torch can use; run it where there is one")
    if item.get_closest_marker("dsocr_vendor") and not _is_vendors(own):
        leave_out(item, "vendor", "needs the vendor's Python files; name their folder: --dsocr-reference=FOLDER")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Send on what a test compared, and let it fail where that is nothing."""
    report = yield
    if is_ours(item):
        amend(item, call, report)
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of one case on one worker."""
    from pytest_dsocr.scheduling import make_scheduler

    return make_scheduler(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker found of the ledger."""
    node.config.stash[UNMATCHED] = getattr(node, "workeroutput", {}).get("dsocr_unmatched", [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send a worker's findings on."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["dsocr_unmatched"] = session.config.stash.get(UNMATCHED, [])


def _cases(config: pytest.Config) -> list[Case]:
    if ALL_CASES not in config.stash:
        from pytest_dsocr.pages import make_cases

        own = config.stash[CONFIG]
        config.stash[ALL_CASES] = make_cases(own.pages, own.prompts, own.presets, own.max_new_tokens)
    return config.stash[ALL_CASES]


def _wants(metafunc: pytest.Metafunc, name: str) -> bool:
    """Say whether a test asks for our fixture, or for one in its place that does, and nobody gives its values."""
    given = {name for mark in metafunc.definition.iter_markers("parametrize") for name in _argnames(mark)}
    if name in given:
        return False
    definitions = reversed(metafunc._arg2fixturedefs.get(name, ()))
    base = next((one for one in definitions if name not in one.argnames), None)
    return base is not None and base.func.__module__ == FIXTURES


def _argnames(mark: pytest.Mark) -> list[str]:
    names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


def _level(item: pytest.Item) -> Level | None:
    mark = item.get_closest_marker("dsocr_level")
    return arguments_of(mark) if mark and is_ours(item) else None


def _check_goldens(config: pytest.Config, own: Config) -> None:
    """Refuse goldens that are not there, unless snapshots are to be made, and those that must not be written to."""
    if any(config.getoption(name, False) for name in ("update_snapshots", "update_new_snapshots_only")):
        from pytest_dsocr.snapshots import check_update

        try:
            check_update(own.golden)
        except DsocrError as error:
            raise pytest.UsageError(str(error)) from error
    elif not own.golden.is_dir():
        raise pytest.UsageError(
            f"there is no folder {own.golden} of goldens; make one: --snapshot-update, or dsocr vendor record --golden"
        )


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _is_timed(config: pytest.Config) -> bool:
    """Say whether pytest's own plugin uses the one timer that faulthandler has."""
    has_plugin = config.pluginmanager.has_plugin("faulthandler")
    return has_plugin and float(config.getini("faulthandler_timeout") or 0) > 0


def _is_vendors(own: Config) -> bool:
    return own.reference is not None and (own.reference / FILES[0]).is_file()
