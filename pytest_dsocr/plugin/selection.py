"""Deselected tests, and suites that run only on request."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.plugin.options import OPTIONS, PREFIX, value_of
from pytest_dsocr.plugin.stash import COLLECTED, CONFIG, NAMED, NOTES
from pytest_dsocr.report.words import ON_REQUEST
from pytest_dsocr.report.worker_report import Deselection

if TYPE_CHECKING:
    from pytest_dsocr.records.case import Case

SELECTING = {"keyword": "-k", "markexpr": "-m", "deselect": "--deselect", "lf": "--lf", "stepwise": "--sw"}
"""Options of pytest that deselect tests: the attribute and the flag."""
MOST_NAMES = 100
"""Most tests to name."""


def deselected(session: pytest.Session) -> Deselection:
    """Return our tests that are deselected, except those that our own options leave out."""
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
        listed=[*map(_listed, named.good)] if named else [],
    )


def _listed(case: Case) -> tuple[str, str, str, str]:
    from pytest_dsocr.records.case import prompt_name

    return case.id, case.page_name, case.preset.name, prompt_name(case.prompt, case.family)


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

    The environment variable that asks for a new baseline has the same effect.

    Args:
        options: the parsed options.
        prefix: prefix of their names.
    """
    with suppress(DsocrError):  # which pytest refuses
        if value_of(UPDATE, UPDATE.in_environment()):
            return True
    allow_missing = getattr(options, f"{prefix}allow_missing", None) or ()
    return not {"timings", "baseline"}.isdisjoint(allow_missing) or any(
        getattr(options, f"{prefix}{name}", None) for name in ASKING
    )


def is_unasked(folder: Path, config: pytest.Config) -> bool:
    """Return whether a measuring suite is to be left out, because nothing asks for it; add a note if so.

    Args:
        folder: folder of any suite.
        config: of the run.
    """
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
