"""Fixtures of the contract suite, and the tests that it leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.engine.places import MINI, family_named, split_model
from pytest_dsocr.plugin.config import own_config

from .asked import Asked, Drawn
from .facts import Facts, Pixels
from .recipes import Recipes

if TYPE_CHECKING:
    from pytest_dsocr.describe.ids import Vocabulary
    from pytest_dsocr.engine.tokenizer import Tokenizer
    from pytest_dsocr.models.spec import ModelSpec
    from pytest_dsocr.records.config import Config

ODD_PAGES = Path(__file__).with_name("test_odd_pages.py")
TOGETHER = Path(__file__).with_name("test_pages_together.py")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the tests of several pages in one prompt if the model has no such prompt."""
    return (
        True if collection_path == TOGETHER and not family_named(own_config(config).checkpoint).pages_prompt else None
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the odd pages unless the checkpoint is ``mini``, which was trained to read their words."""
    own = [item for item in items if item.path == ODD_PAGES]
    if own and split_model(own_config(config).checkpoint)[1] != MINI:
        config.hook.pytest_deselected(items=own)
        items[:] = [item for item in items if item not in own]


@pytest.fixture(scope="session")
def facts(dsocr_config: Config, family: ModelSpec) -> Facts:
    """Return the recorded inputs of the vendor's code."""
    return Facts.read(dsocr_config.golden, family)


@pytest.fixture(scope="session")
def tokenizer(dsocr_config: Config) -> Tokenizer:
    """Return the tokenizer in the checkpoint's files, independent of the subject."""
    from pytest_dsocr.engine.checkpoint import resolve

    return resolve(dsocr_config.checkpoint).tokenizer


@pytest.fixture(scope="session")
def vocabulary(dsocr_config: Config, tokenizer: Tokenizer) -> Vocabulary:
    """Return the checkpoint's ids."""
    from pytest_dsocr.describe.ids import Vocabulary
    from pytest_dsocr.engine.checkpoint import resolve

    return Vocabulary(tokenizer, resolve(dsocr_config.checkpoint).architecture.decoder.vocab_size)


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """Return the drawn pages of this run."""
    return Drawn(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="session")
def asked(dsocr_subject: Any, family: ModelSpec) -> Asked:
    """Return the subject's inputs, each computed once."""
    return Asked(dsocr_subject, family)


@pytest.fixture(scope="session")
def pixels(facts: Facts, asked: Asked, drawn: Drawn, tokenizer: Tokenizer) -> Pixels:
    """Return the comparer of the subject's pixels with the recorded ones."""
    return Pixels(facts, asked, drawn, tokenizer, Recipes(asked, drawn))
