"""Fixtures of the cost suite."""

from typing import Any

import pytest

from pytest_dsocr.plugin.perf import leave_isolated_out
from pytest_dsocr.records.config import Config

from ..cache.conftest import _without_gradients  # noqa: F401 - is used by every test here
from ..contract.asked import Drawn
from .flops import Scales


@pytest.fixture(scope="session")
def made(dsocr_subject: Any, dsocr_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Scales:
    """Return the counter of the subject's FLOPs."""
    from pytest_dsocr.engine.checkpoint import resolve

    checkpoint, drawn = resolve(dsocr_config.checkpoint), Drawn(tmp_path_factory.mktemp("white"))
    return Scales(dsocr_subject, checkpoint.architecture, checkpoint.tokenizer, drawn)


@pytest.fixture
def scales(request: pytest.FixtureRequest, dsocr_config: Config) -> Scales:
    """Return the counter, or leave the test out if the subject runs in another process."""
    leave_isolated_out(request.node, dsocr_config)
    found: Scales = request.getfixturevalue("made")
    return found
