"""Fixtures of the suite of the second checkpoint, which needs a run of ``mini`` in float32 on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.engine.places import MINI, split_model
from pytest_dsocr.plugin.config import own_config

if TYPE_CHECKING:
    from pytest_dsocr.records.config import Config

    from .second import Second

HERE = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect these tests if the run has another checkpoint, device or dtype; the recordings have none."""
    own = [item for item in items if item.path.is_relative_to(HERE)]
    if own and not _is_asked(own_config(config)):
        config.hook.pytest_deselected(items=own)
        items[:] = [item for item in items if item not in own]


@pytest.fixture(scope="session")
def second(dsocr_config: Config, dsocr_subject: Any, tmp_path_factory: pytest.TempPathFactory) -> Second:
    """Return the second checkpoint, written to a temporary folder."""
    from .second import Second

    return Second.written(dsocr_config, dsocr_subject, tmp_path_factory.mktemp("second"))


def _is_asked(own: Config) -> bool:
    return (split_model(own.checkpoint)[1], own.device, own.dtype) == (MINI, "cpu", "float32")
