"""Fixtures of the server suite, which is collected only if the subject is an ``http:`` server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.engine.places import family_named
from pytest_dsocr.plugin.config import own_config
from pytest_dsocr.subjects.loading import HTTP, HTTPS

from .asked import Asked

if TYPE_CHECKING:
    from pytest_dsocr.records.config import Config
    from pytest_dsocr.reference.protocol import Reference


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the suite if the subject is not a server."""
    try:
        return None if own_config(config).subject.startswith((HTTP, HTTPS)) else True
    except pytest.UsageError:  # the first collected test reports it
        return True


@pytest.fixture(scope="session")
def asked(
    dsocr_config: Config, dsocr_subject: Any, dsocr_reference: Reference, tmp_path_factory: pytest.TempPathFactory
) -> Asked:
    """Return the server's answers to the run's pages and to odd ones."""
    from pytest_dsocr.adapters.server import ServerSubject
    from pytest_dsocr.engine.checkpoint import resolve
    from pytest_dsocr.pages.named import make_cases
    from pytest_dsocr.run.limits import own_limits
    from pytest_dsocr.subjects.protocol import NotOfferedError, Offers

    if not isinstance(dsocr_subject, ServerSubject):
        raise NotOfferedError("not offered: an API; the subject comes from a fixture")
    own, offers = dsocr_config, Offers.of(dsocr_subject)
    presets = [name for name in own.presets if name in (offers.presets or own.presets)]
    prompts = [name for name in own.prompts if name in (offers.prompts or own.prompts)]
    if not presets or not prompts:
        raise NotOfferedError("not offered: any of the run's presets and prompts")
    cases = make_cases(own.pages, prompts, presets, own.max_new_tokens, family=family_named(own.checkpoint)).good
    tokenizer, limits = resolve(own.checkpoint).tokenizer, own_limits(own, dsocr_subject)
    return Asked(dsocr_subject, cases, dsocr_reference, tokenizer, limits, tmp_path_factory.mktemp("odd"))
