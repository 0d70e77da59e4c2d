"""Equal logits and caches from steps, from one call, and from a continued cache.

They are also compared for a prompt of one token without an image. A subject that does not accept such a prompt raises
``NotImplementedError``.
"""

import pytest

from pytest_dsocr.compare.verdict import Comparison, Reason, as_expected, not_compared
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.records.config import SubjectFaultError
from pytest_dsocr.subjects.kv_probe import KINDS, CacheKind

from .walk import STEPS, Walk
from .ways import Ways

pytestmark = pytest.mark.dsocr_level("L2")


def test_step_by_step_is_one_call(walk: Walk, ways: Ways, dsocr_check: Check) -> None:
    """Compare the logits after each step with a prefill of the prompt and all tokens up to that step."""
    stepped = walk.steps(walk.start()[0], walk.first)
    at_once = [walk.start(walk.first[:count])[1] for count in range(1, STEPS + 1)]
    dsocr_check(ways.steps(stepped, at_once))


@pytest.mark.parametrize("prefilled", [1, STEPS // 2, STEPS - 1])
def test_going_on_from_a_cache_is_one_call(prefilled: int, walk: Walk, ways: Ways, dsocr_check: Check) -> None:
    state, _ = walk.start(walk.first[:prefilled])
    found = walk.steps(state, walk.first[prefilled:])[-1]
    expected = walk.start(walk.first)[1]
    dsocr_check([ways.logits(f"logits/from {prefilled} on", found, expected)])


@pytest.mark.parametrize("kind", KINDS)
def test_the_cache_holds_the_same_by_either_way(kind: CacheKind, walk: Walk, ways: Ways, dsocr_check: Check) -> None:
    stepped, at_once = walk.start()[0], walk.start(walk.first)[0]
    walk.steps(stepped, walk.first)
    dsocr_check(ways.cache(kind, layer, stepped, at_once, walk.prompt_tokens) for layer in range(at_once.cache.layers))


def test_vision_gives_nothing(walk: Walk, dsocr_check: Check) -> None:
    seams = sorted(walk.subject.vision(walk.text_only()))
    dsocr_check([as_expected("vision_fusion/one token", seams, [], "because the prompt has no image tokens")])


def test_it_is_the_beginning_of_a_longer_one(walk: Walk, ways: Ways, dsocr_check: Check) -> None:
    """Compare BOS with a token as a step against both tokens in one call."""
    try:
        dsocr_check(_both_ways(walk, ways))
    except SubjectFaultError as fault:
        if not isinstance(fault.__cause__, NotImplementedError):
            raise
        dsocr_check([not_compared("prefill/one token", Reason.NOT_OFFERED)])


def _both_ways(walk: Walk, ways: Ways) -> list[Comparison]:
    state, _ = walk.subject.prefill(walk.text_only(), None)
    length = state.cache.length
    [found] = walk.steps(state, walk.first[:1])
    _, expected = walk.subject.prefill(walk.text_only(walk.first[:1]), None)
    return [
        as_expected("cache/length", length, 1, "the tokens of the prompt"),
        ways.logits("logits/second token", found, expected),
    ]
