"""What stands in the cache is never written again, to the bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_dsocr.check import Check
from pytest_dsocr.compare.expected import as_expected
from pytest_dsocr.compare.verdict import Comparison
from pytest_dsocr.kv_probe import KvProbe
from pytest_dsocr.subjects.protocol import DecodeView

from .walk import Walk

pytestmark = pytest.mark.dsocr_level("L2")


def test_earlier_positions_stay_as_they_are(
    walk: Walk, dsocr_kv: Callable[[DecodeView], KvProbe], dsocr_check: Check
) -> None:
    state, _ = walk.start()
    before = dsocr_kv(state).digest()
    found: list[Comparison] = []
    for step, token in enumerate(walk.tokens, 1):
        walk.steps(state, [token])
        after = dsocr_kv(state).digest()
        changed = before.changed(after)
        where = f"{len(changed)} changed, first {changed[0]}" if changed else "none changed"
        why = f"of {len(after.hashes)} layers' positions before step {step}"
        found.append(as_expected(f"cache/contents at step {step}", where, "none changed", why))
        before = after
    dsocr_check(found)
