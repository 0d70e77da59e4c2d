"""What the suite of the cache shares."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.pages.named import first_pages
from pytest_dsocr.records.config import Config

from .walk import Walk


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    """As the run's cases are asked: a subject may leave it to its caller, and torch warns once of what keeps them."""
    import torch

    with torch.no_grad():
        yield


@pytest.fixture(scope="session")
def first_page(dsocr_config: Config) -> Path:
    """The run's first page."""
    return first_pages(dsocr_config.pages)[0]


@pytest.fixture(scope="session")
def walk(dsocr_subject: Any, first_page: Path, dsocr_config: Config) -> Walk:
    """The subject on the run's first page, in the quickest preset."""
    return Walk.along(dsocr_subject, first_page, family=family_named(dsocr_config.checkpoint))


@pytest.fixture(scope="session")
def limits(dsocr_subject: Any, dsocr_config: Config) -> Tolerances:
    """How far two ways of the subject's own may be apart: by its dtype and the run's options."""
    from pytest_dsocr.run.case import own_limits

    return own_limits(dsocr_config, dsocr_subject)


@pytest.fixture(scope="session")
def two_pages(dsocr_config: Config, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The run's first two pages; where it has but one, a drawn one as well."""
    from ..contract.pages import write_page

    first, *others = first_pages(dsocr_config.pages, 2)
    return first, others[0] if others else write_page("landscape", tmp_path_factory.mktemp("pages"))
