"""Fixtures of the cache suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.pages.named import first_pages
from pytest_dsocr.records.config import Config

from .scale import RoundingScale
from .walk import Walk
from .ways import Ways

if TYPE_CHECKING:
    pass


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    """Turn gradients off, as for the run's cases; a subject may leave that to its caller."""
    import torch

    with torch.no_grad():
        yield


@pytest.fixture(scope="session")
def walk(dsocr_subject: Any, first_page: Path, family: ModelSpec) -> Walk:
    """Return the subject's walk through the run's first page, in the quickest preset."""
    from pytest_dsocr.subjects.calls import current

    found = Walk.along(dsocr_subject, first_page, family=family)
    if found.wobble:
        current().note(
            f"the subject is not deterministic: the logits of the same steps, taken twice, differ by {found.wobble:.1e}"
        )
    return found


@pytest.fixture(scope="session")
def ways(dsocr_config: Config, dsocr_subject: Any, scale: RoundingScale, walk: Walk) -> Ways:
    """Return the limits of two ways of the subject."""
    return Ways.of(dsocr_config, dsocr_subject, scale, walk.wobble)


@pytest.fixture(scope="session")
def two_pages(dsocr_config: Config, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the run's first two pages, or its only page and a drawn one."""
    from ..contract.pages import write_page

    first, *others = first_pages(dsocr_config.pages, 2)
    return first, others[0] if others else write_page("landscape", tmp_path_factory.mktemp("pages"))
