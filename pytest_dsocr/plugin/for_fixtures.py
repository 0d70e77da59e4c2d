"""What several fixtures need: who shares the run, what it is called in reports, limits that a test's markers set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.judge.config import Config
from pytest_dsocr.observation.level import Level
from pytest_dsocr.plugin.markers import arguments_of
from pytest_dsocr.plugin.stash import LOADED
from pytest_dsocr.subjects.protocol import level_of
from pytest_dsocr.subjects.watch import current

if TYPE_CHECKING:
    from pytest_dsocr.compare.tolerances import Tolerances
    from pytest_dsocr.subjects.checked import CheckedSubject


@contextmanager
def or_stop(session: pytest.Session, side: str) -> Iterator[None]:
    """Stop the run if a side cannot be opened: every other test would fail in the same way."""
    try:
        yield
    except DsocrError:
        session.shouldfail = f"dsocr: without its {side} nothing can be compared"
        raise


def workers(config: pytest.Config) -> int:
    """Give the number of processes that share the run."""
    return int(getattr(config, "workerinput", {}).get("workercount", 1))


def as_told(request: pytest.FixtureRequest, config: Config) -> Config:
    """Give the config for reports. A subject that comes from the user's own fixture is named by its type."""
    if "dsocr_subject" not in request.fixturenames:
        return config
    subject = request.getfixturevalue("dsocr_subject")
    if request.config.stash.get(LOADED, None) is subject:
        return config
    if config.isolate:
        current().note(
            "--dsocr-isolate does nothing for a subject that comes from a fixture of your own; name it by an option"
        )
    return replace(config, subject=f"{type(subject).__module__}:{type(subject).__qualname__}")


def marked(limits: Tolerances, test: pytest.Item) -> Tolerances:
    """Apply the tolerances of the test's markers, the nearest last."""
    for mark in reversed(list(test.iter_markers("dsocr"))):
        limits = limits.but(arguments_of(mark))
    return limits


def checked(subject: Any) -> CheckedSubject:
    """Give a subject whose answers are checked."""
    from pytest_dsocr.subjects.checked import CheckedSubject

    return CheckedSubject(subject)


def needs(subject: Any, level: Level, fixture: str) -> None:
    """Refuse a fixture to a subject of a lower level."""
    if level_of(subject) < level:
        raise DsocrError(
            f"{fixture} needs a subject of {level} ({level.meaning}); mark the test dsocr_level({str(level)!r})"
        )
