"""The suite of the cache against a family with a ring: its own passes; none, one of other size, and a window do not."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_dsocr.compare.verdict import Comparison
from pytest_dsocr.families import FAMILIES
from pytest_dsocr.families.family import CachePolicy
from pytest_dsocr.subjects.kv_probe import KvProbe
from pytest_dsocr.subjects.session import SessionSubject
from suites.cache import test_contents
from suites.cache.walk import Walk
from suites.contract.pages import write_page
from tests.engine.written import synthetic_session

EXPECTED = FAMILIES["unlimited_ocr"].with_ring(8)
GROWS, STAY, LINEAR = (
    test_contents.test_it_grows_by_one_in_every_layer_a_step,
    test_contents.test_earlier_positions_stay_as_they_are,
    test_contents.test_growth_is_linear,
)


@dataclass(frozen=True)
class PlainWindow(CachePolicy):
    """As long as the ring, and over the whole cache: the prompt goes first."""

    def slot(self, prompt: int, generated: int) -> int:
        return (prompt + generated) % self.length(prompt, generated + 1)


@pytest.mark.parametrize(
    "policy", [CachePolicy(8), CachePolicy(), CachePolicy(7), CachePolicy(9), PlainWindow(8)], ids=str
)
def test_a_cache_is_held_to_its_familys_ring(policy: CachePolicy, tmp_path: Path) -> None:
    subject = SessionSubject(synthetic_session(replace(EXPECTED, cache=policy)))
    walk = Walk.along(subject, write_page("tiny", tmp_path), family=EXPECTED)

    def fails(test: Callable[..., None]) -> bool:
        found: list[Comparison] = []
        test(walk, KvProbe, found.extend)
        return not found or not all(one.passes for one in found)

    expected = [] if policy == EXPECTED.cache else [STAY] if isinstance(policy, PlainWindow) else [GROWS, STAY, LINEAR]
    assert [test for test in (GROWS, STAY, LINEAR) if fails(test)] == expected
