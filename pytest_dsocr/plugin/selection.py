"""Known failures, deselected tests, and suites that run only on request."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.plugin.markers import arguments_of, is_ours
from pytest_dsocr.plugin.option import PREFIX, value_of
from pytest_dsocr.plugin.options import OPTIONS
from pytest_dsocr.plugin.stash import COLLECTED, CONFIG, NAMED, NOTES, UNMATCHED
from pytest_dsocr.plugin.xfails import read_ledger
from pytest_dsocr.report.words import ON_REQUEST
from pytest_dsocr.report.worker_report import Deselection

if TYPE_CHECKING:
    from pytest_dsocr.records.config import Level

SELECTING = {"keyword": "-k", "markexpr": "-m", "deselect": "--deselect", "lf": "--lf", "stepwise": "--sw"}
"""Options of pytest that deselect tests: the attribute and the flag."""
MOST_NAMES = 100
"""Most tests to name."""


def deselected(session: pytest.Session) -> Deselection:
    """Return our tests that are deselected, except those that our own options leave out."""
    from pytest_dsocr.records.case import prompt_name

    named = session.config.stash.get(NAMED, None)
    found, kept = session.config.stash.get(COLLECTED, {}), {item.nodeid for item in session.items}
    names = [name for name in found if name not in kept]
    values = {flag: getattr(session.config.option, name, None) for name, flag in SELECTING.items()}
    by = [flag if value is True else f"{flag} {value}" for flag, value in values.items() if value]
    return Deselection(
        tests=len(names),
        of=len(found),
        by=by if names else [],
        names=names[:MOST_NAMES],
        listed=[
            (case.id, case.page_name, case.preset.name, prompt_name(case.prompt, case.family))
            for case in (named.good if named else ())
        ],
    )


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark known failures, deselect tests above the run's level or of other shards, and ask for the level of others."""
    own = config.stash[CONFIG]
    if own.xfails:
        ledger = read_ledger(own.xfails)
        config.stash[UNMATCHED] = list(ledger.apply(items))
        config.stash.setdefault(NOTES, []).extend(ledger.over())
    if own.level is not None:
        _leave(config, items, {item for item in items if (_level(item) or 0) > own.level})
    if own.shard and not own.shard.is_first:  # tests of other shards' pages were not made
        from pytest_dsocr.plugin.config import cases_of

        cases = cases_of(config)
        pages = {*(case.page for case in cases.good), *(one.path for one in cases.bad)}
        _leave(config, items, {item for item in items if _page_of(item) not in pages})
    for item in items:
        if _level(item) is not None and isinstance(item, pytest.Function):
            item.fixturenames.insert(0, "_dsocr_level_needed")


def _leave(config: pytest.Config, items: list[pytest.Item], left: Collection[pytest.Item]) -> None:
    """Deselect tests that our own options exclude, and do not count them as left out."""
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]
        for item in left:
            config.stash[COLLECTED].pop(item.nodeid, None)


def _page_of(item: pytest.Item) -> Path | None:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    given = params.get("dsocr_case", params.get("dsocr_page"))
    found: Path | None = getattr(given, "page", getattr(given, "path", given))
    return found


def _level(item: pytest.Item) -> Level | None:
    mark = item.get_closest_marker("dsocr_level")
    return arguments_of(mark) if mark and is_ours(item) else None


MARKER = "dsocr_perf"
ASKING = ("baseline_update", "max_slowdown", "max_rounds", "baseline_days")
"""Options that have no effect on a run without times."""
[UPDATE] = [option for option in OPTIONS if option.name == "baseline_update"]
WORDS = (
    *(f"--{PREFIX}-{name.replace('_', '-')}" for name in ASKING),
    *(f"--{PREFIX}-allow-missing={name}" for name in ("timings", "baseline")),
    MARKER,
)
"""Beginnings of pytest arguments that ask for times."""


def asks_for_times(options: Any, prefix: str = "") -> bool:
    """Return whether a run measures times: an option of the times is given, or times are allowed to be missing.

    The environment variable that asks for a new baseline has the same effect. ``prefix`` is that of the options' names.
    """
    with suppress(DsocrError):  # which pytest refuses
        if value_of(UPDATE, UPDATE.in_environment()):
            return True
    allow_missing = getattr(options, f"{prefix}allow_missing", None) or ()
    return not {"timings", "baseline"}.isdisjoint(allow_missing) or any(
        getattr(options, f"{prefix}{name}", None) for name in ASKING
    )


def is_unasked(folder: Path, config: pytest.Config) -> bool:
    """Return whether a folder is a measuring suite that nothing asks for; add a note if so."""
    if folder.name not in ON_REQUEST or not _came_with_all(folder, config) or _is_selected(folder.name, config):
        return False
    note = (
        f"the suite {folder.name} measures, and runs only on request: give its own path, "
        f"pytest_dsocr.suites.{folder.name} with --pyargs, -m {MARKER}, or -k"
    )
    notes = config.stash.setdefault(NOTES, [])
    notes += [note] if note not in notes else []
    return True


def _came_with_all(folder: Path, config: pytest.Config) -> bool:
    """Return whether an argument names a folder above it or the package of all suites, and none names a part of it."""
    here, above = config.invocation_params.dir, folder.parent.parent
    places = []
    for argument in config.args:
        path, _, _ = str(argument).partition("::")
        package, *parts = path.split(".")
        is_dotted = config.option.pyargs and package == "pytest_dsocr"
        places.append((above.joinpath(*parts) if is_dotted else here / path).resolve())
    folder = folder.resolve()
    is_named = any(place.is_relative_to(folder) for place in places)
    return not is_named and any(folder.is_relative_to(place) for place in places)


def _is_selected(name: str, config: pytest.Config) -> bool:
    keyword = config.option.keyword or "not "
    if MARKER in (config.option.markexpr or "") or not keyword.startswith("not "):
        return True
    own = config.stash.get(CONFIG, None)
    return name == "perf" and (asks_for_times(config.option, f"{PREFIX}_") or (own is not None and own.baseline_update))
