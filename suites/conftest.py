"""Fixtures and checks that all suites share; without the plugin no suite runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.engine.places import family_named
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.pages.named import first_pages
from pytest_dsocr.records.config import Config

if TYPE_CHECKING:
    from pytest_dsocr.run.resources import RunResources

    from .cache.scale import RoundingScale
    from .cache.ways import TextWays


@pytest.fixture(scope="session")
def family(dsocr_config: Config) -> ModelSpec:
    """Return the model of the checkpoint."""
    return family_named(dsocr_config.checkpoint)


@pytest.fixture(scope="session")
def first_page(dsocr_config: Config) -> Path:
    """Return the run's first page."""
    return first_pages(dsocr_config.pages)[0]


@pytest.fixture(scope="session")
def scale(_dsocr_resources: RunResources, first_page: Path, family: ModelSpec) -> RoundingScale:
    """Return the vendor's rounding on the run's first page; nothing is computed before it is needed."""
    from .cache.scale import RoundingScale

    return RoundingScale(_dsocr_resources.rounder_within(None), first_page, family)


@pytest.fixture(scope="session")
def text_ways(
    dsocr_config: Config, dsocr_subject: Any, scale: RoundingScale, _dsocr_resources: RunResources
) -> TextWays:
    """Return what compares texts that the subject read in two ways."""
    from pytest_dsocr.run.limits import own_limits
    from pytest_dsocr.subjects.checked import CheckedSubject

    from .cache.ways import TextWays

    limits, tokenizer = own_limits(dsocr_config, dsocr_subject), _dsocr_resources.checkpoint.tokenizer
    return TextWays(
        CheckedSubject(dsocr_subject), lambda: CheckedSubject(_dsocr_resources.donor), tokenizer, limits, scale
    )


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
