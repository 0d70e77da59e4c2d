"""Fixtures and checks that all suites share; without the plugin no suite runs."""

from pathlib import Path

import pytest

from pytest_dsocr.engine.places import family_named
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.records.config import Config


@pytest.fixture(scope="session")
def family(dsocr_config: Config) -> ModelSpec:
    """Return the model of the checkpoint."""
    return family_named(dsocr_config.checkpoint)


def pytest_configure(config: pytest.Config) -> None:
    """Raise ``UsageError`` if the plugin is not loaded, before anything fails without it."""
    if not hasattr(config.option, "dsocr_subject"):
        raise pytest.UsageError(
            "these suites need the plugin pytest-dsocr; remove -p no:dsocr, "
            "or add -p dsocr if plugins are not autoloaded"
        )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the suites that measure unless the run asks for them."""
    from pytest_dsocr.plugin.selection import is_unasked

    is_suite = collection_path.parent == Path(__file__).parent
    return True if is_suite and is_unasked(collection_path, config) else None
