"""What the suite of the cache shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .walk import Walk

if TYPE_CHECKING:
    from pytest_dsocr.compare.tolerances import Tolerances
    from pytest_dsocr.options import Config


@pytest.fixture(scope="session")
def walk(dsocr_subject: Any, dsocr_config: Config) -> Walk:
    """The subject on the run's first page, in Tiny."""
    from pytest_dsocr.pages import first_pages

    return Walk(dsocr_subject, first_pages(dsocr_config.pages)[0])


@pytest.fixture(scope="session")
def whole_walk(dsocr_subject: Any, dsocr_config: Config) -> Walk:
    """The subject on the run's first page, in the run's first preset."""
    from pytest_dsocr.pages import first_pages

    return Walk(dsocr_subject, first_pages(dsocr_config.pages)[0], dsocr_config.presets[0])


@pytest.fixture(scope="session")
def limits(dsocr_subject: Any, dsocr_config: Config) -> Tolerances:
    """How far two ways of the subject's own may be apart: by its dtype and the run's options."""
    from pytest_dsocr.sides import own_limits

    return own_limits(dsocr_config, dsocr_subject)
