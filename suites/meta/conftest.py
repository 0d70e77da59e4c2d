"""What the suites share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.session import Session

with suppress(ImportError):  # where only what needs a GPU is run
    from hypothesis import HealthCheck, settings

    settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy machine")


@pytest.fixture(scope="session", autouse=True)
def _found_by_processes_of_a_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Processes that a test starts find these tests' examples, and the package where it is installed."""
    folder = tmp_path_factory.mktemp("path")
    (folder / "suites").symlink_to(Path(__file__).parents[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))))
        yield


@pytest.fixture(scope="session")
def tiny() -> Session[Any]:
    """A session on the smallest synthetic checkpoint."""
    return Session.from_checkpoint("synthetic:tiny")


def model_of(session: Session[Any]) -> DeepseekOCR:
    """The engine's model behind a session, with its modules."""
    assert isinstance(session.model, DeepseekOCR)
    return session.model
