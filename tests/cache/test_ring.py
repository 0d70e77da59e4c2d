"""The suite of the cache against a family with a ring: its own passes; none, one of other size, and a window do not."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from pytest_dsocr.compare.verdict import Comparison
from pytest_dsocr.contract.policy import CachePolicy
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.models import MODELS
from pytest_dsocr.records.config import Config
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.kv_probe import KvProbe
from suites.cache import test_contents, test_reading
from suites.cache.walk import Walk
from suites.contract.asked import own_preset
from suites.contract.pages import write_page
from tests.cache.own import EXACT, text_ways
from tests.engine.written import synthetic_engine

FAMILY = MODELS["unlimited_ocr"]
OWN = replace(FAMILY, presets={**FAMILY.presets, "view": own_preset("view", 256, 256, crop=False)})
"""The family with a view of 256 px, a sixteenth of the work."""
EXPECTED = OWN.with_ring(8)
GROWS, STAY, SEES = (
    test_contents.test_it_grows_by_one_in_every_layer_a_step,
    test_contents.test_earlier_positions_stay_as_they_are,
    test_contents.test_a_step_sees_what_is_kept,
)


@dataclass(frozen=True)
class PlainWindow(CachePolicy):
    """A window as long as the ring that also drops the prompt, oldest tokens first."""

    def slot(self, prompt: int, generated: int) -> int:
        return (prompt + generated) % self.length(prompt, generated + 1)


WORDS = {
    CachePolicy(8): "",
    CachePolicy(): "whether it is full attention instead of a ring of 8",
    CachePolicy(7): "whether it is a ring of 7 tokens instead of 8",
    CachePolicy(9): "whether it is a ring of 9 tokens instead of 8",
    PlainWindow(8): "whether it is a plain window, which drops the prompt",
}


@pytest.mark.parametrize(("policy", "words"), WORDS.items(), ids=map(str, WORDS))
def test_a_cache_is_held_to_its_familys_ring_and_named(policy: CachePolicy, words: str, tmp_path: Path) -> None:
    subject = EngineSubject(synthetic_engine(replace(EXPECTED, cache=policy)))
    walk = Walk.along(subject, write_page("tiny", tmp_path), family=EXPECTED)

    def fails(test: Callable[..., None]) -> bool:
        found: list[Comparison] = []
        test(walk, EXACT if test is SEES else KvProbe, found.extend)
        said.update(line for one in found for line in one.details)
        return not found or not all(one.passes for one in found)

    said = set[str]()
    expected = [] if not words else [STAY, SEES] if isinstance(policy, PlainWindow) else [GROWS, STAY]
    failing = [test for test in (GROWS, STAY, SEES) if fails(test)]
    assert failing[: len(expected)] == expected, failing
    assert said == ({f"check: {words}"} if words else set())


@dataclass(frozen=True)
class AtTheEnd(CachePolicy):
    """A ring whose next token goes to the end."""

    def slot(self, prompt: int, generated: int) -> int:
        return self.length(prompt, generated + 1) - 1


class OldestFirst(KVCache):
    """A cache that drops its oldest token, moves the later ones one place forward, and appends the new one."""

    keeps_prompt = True

    def append(self, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        if self.length == max(self.lengths_after(keys.shape[2])):
            first = self.prompts[0] if self.keeps_prompt else 0
            for held in (self.keys(layer), self.values(layer)):
                held[:, :, first:-1] = held[:, :, first + 1 :].clone()
        return super().append(layer, keys, values, positions)


class OldestFirstOfAll(OldestFirst):
    """A cache that drops the prompt."""

    keeps_prompt = False


@pytest.mark.parametrize(
    ("kind", "size", "expected"),
    [(OldestFirst, 8, None), (OldestFirst, 7, GROWS), (OldestFirst, 9, GROWS), (OldestFirstOfAll, 8, STAY)],
)
def test_a_ring_may_be_kept_oldest_first(
    kind: type[KVCache], size: int, expected: Callable[..., None] | None, tmp_path: Path
) -> None:
    engine = synthetic_engine(EXPECTED)
    model: Any = engine.model
    model.new_cache = lambda: kind(model.arch.decoder.num_hidden_layers, policy=AtTheEnd(size))
    walk = Walk.along(EngineSubject(engine), write_page("tiny", tmp_path), family=EXPECTED)
    found: dict[Callable[..., None], list[Comparison]] = {test: [] for test in (GROWS, STAY, SEES)}
    for test, comparisons in found.items():
        test(walk, EXACT if test is SEES else KvProbe, comparisons.extend)
    assert all(found.values())
    failing = [test for test in found if not all(one.passes for one in found[test])]
    assert failing[:1] == ([expected] if expected else [])


RULE: dict[str, Any] = {"no_repeat_ngram_size": 1, "ngram_window": 5}
RULES: dict[str, dict[str, Any]] = {
    "as it says": {},
    "no rule": {"no_repeat_ngram_size": 0},
    "no window": {"ngram_window": None},
    "one less": {"ngram_window": 4},
    "one more": {"ngram_window": 6},
}


@pytest.mark.parametrize("mistake", RULES)
def test_a_reading_is_held_to_the_window_that_it_was_given(mistake: str, tmp_path: Path, dsocr_config: Config) -> None:
    """The n-gram rule is the caller's choice in the vendor's ``infer``, so the subject declares it."""
    engine = synthetic_engine(OWN)
    declared = replace(engine.policy, **RULE)
    used = Engine(engine.model, engine.tokenizer, policy=replace(declared, **RULES[mistake]))
    subject = type("Declaring", (EngineSubject,), {"policy": declared})(used)
    config, found = replace(dsocr_config, checkpoint="synthetic:tiny"), list[Comparison]()
    read = test_reading.both_ways(subject, config)
    check: Any = found.extend
    test_reading.test_read_says_what_its_own_steps_choose(
        "tiny", tmp_path, read, text_ways(subject, engine.tokenizer), OWN, config, check
    )
    assert all(one.passes for one in found) is (mistake == "as it says"), found
