"""Subjects with a mistake have that mistake and nothing else."""

from typing import Any

import pytest

from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.explain.mistake import Changes
from pytest_dsocr.explain.planted import plant
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from suites.contract.pages import PAGES
from tests.engine.test_engine import CROPS, cropping


@pytest.fixture(scope="module")
def engine() -> Engine[Any]:
    return cropping()


@pytest.mark.parametrize(
    "name",
    [
        *("prefill.softmax-bfloat16", "prefill.rope-values", "prefill.positions-text-apart"),
        *("steps.positions-one-high", "steps.cache-no-image", "steps.fed-late", "read.draw"),
    ],
)
def test_pages_of_unlike_lengths_in_a_batch_are_read_as_each_alone(name: str, engine: Engine[Any]) -> None:
    """Otherwise the suite of batches would find a mistake that has nothing to do with batches."""
    how: dict[str, Any] = {"preset": CROPS, "max_new_tokens": 8}
    pages = [PAGES[page]() for page in ("641_wide", "tiny", "exactly_640")]
    with Changes() as changes:
        plant(mistakes(DEEPSEEK_OCR)[name], engine, changes)
        alone = [engine.run(page, **how).token_ids for page in pages]
        assert [one.token_ids for one in engine.run_batch(pages, **how)] == alone
