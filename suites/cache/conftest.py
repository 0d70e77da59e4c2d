"""Fixtures of the cache suite."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.pages.named import first_pages
from pytest_dsocr.records.config import Config

from .walk import Walk


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    """Turn gradients off, as for the run's cases; a subject may leave that to its caller."""
    import torch

    with torch.no_grad():
        yield


@pytest.fixture(scope="session")
def first_page(dsocr_config: Config) -> Path:
    """Return the run's first page."""
    return first_pages(dsocr_config.pages)[0]


@pytest.fixture(scope="session")
def walk(dsocr_subject: Any, first_page: Path, family: ModelSpec) -> Walk:
    """Return the subject's walk through the run's first page, in the quickest preset."""
    return Walk.along(dsocr_subject, first_page, family=family)


@pytest.fixture(scope="session")
def limits(dsocr_subject: Any, dsocr_config: Config) -> Tolerances:
    """Return the limits for two computations of one subject, by its dtype and the run's options."""
    from pytest_dsocr.run.case import own_limits

    return own_limits(dsocr_config, dsocr_subject)


@pytest.fixture(scope="session")
def two_pages(dsocr_config: Config, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the run's first two pages, or its only page and a drawn one."""
    from ..contract.pages import write_page

    first, *others = first_pages(dsocr_config.pages, 2)
    return first, others[0] if others else write_page("landscape", tmp_path_factory.mktemp("pages"))
