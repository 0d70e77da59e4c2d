"""What stands in the cache is of the tokens before, and is never written again, to the bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.verdict import Comparison, as_expected, not_compared
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.subjects.kv_probe import KINDS, KvDigest, KvProbe
from pytest_dsocr.subjects.protocol import DecodeView

from .walk import Walk

pytestmark = pytest.mark.dsocr_level("L2")

Probe = Callable[[DecodeView], KvProbe]


def test_earlier_positions_stay_as_they_are(walk: Walk, dsocr_kv: Probe, dsocr_check: Check) -> None:
    state, _ = walk.start()
    before = dsocr_kv(state).digest()
    found: list[Comparison] = []
    for step, token in enumerate(walk.tokens, 1):
        walk.steps(state, [token])
        after = dsocr_kv(state).digest()
        found.append(_unchanged(before, after, step))
        before = after
    dsocr_check(found)


def test_another_token_is_another_content(walk: Walk, dsocr_kv: Probe, dsocr_check: Check) -> None:
    """Of two prompts that differ in their last token: what is shown of the cache is what was computed of them."""
    one, other = (dsocr_kv(walk.start([token])[0]).digest() for token in (0, 1))
    differing = sum(place.position == walk.prompt_tokens for place in one.changed(other))
    expected = len(KINDS) * max(len(one.hashes), 1)
    dsocr_check([as_expected("cache/contents of a token", differing, expected, "keys and values of each layer")])


def _unchanged(before: KvDigest, after: KvDigest, step: int) -> Comparison:
    what = f"cache/contents at step {step}"
    if not any(kind for layer in before.hashes for kind in layer):
        measured = "the cache shows no positions before it; see its layers, keys and values"
        return not_compared(what, Reason.NOT_GIVEN, measured)
    changed = before.changed(after)
    where = f"{len(changed)} changed, first {changed[0]}" if changed else "none changed"
    return as_expected(what, where, "none changed", f"of {len(after.hashes)} layers' positions before step {step}")
