"""The suites need the plugin; where it is not there, say so before anything else fails for want of it."""

from pathlib import Path

import pytest

from pytest_dsocr.engine.places import family_named
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.records.config import Config


@pytest.fixture(scope="session")
def family(dsocr_config: Config) -> ModelSpec:
    """What is true of the checkpoint's model."""
    return family_named(dsocr_config.checkpoint)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to go on without the plugin."""
    if not hasattr(config.option, "dsocr_subject"):
        raise pytest.UsageError(
            "these suites need the plugin pytest-dsocr; leave out -p no:dsocr, "
            "or, where plugins are not autoloaded, add -p dsocr"
        )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the suites that measure to those who ask for them."""
    from pytest_dsocr.plugin.selection import is_unasked

    is_suite = collection_path.parent == Path(__file__).parent
    return True if is_suite and is_unasked(collection_path, config) else None
