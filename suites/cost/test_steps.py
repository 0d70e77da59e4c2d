"""FLOPs of decode steps at several lengths, and of a whole page."""

from itertools import pairwise

import pytest

from pytest_dsocr.compare.verdict import as_expected
from pytest_dsocr.cost.model import decode_step
from pytest_dsocr.plugin.check import Check

from .flops import FREE, Scales, page_of, step_of

pytestmark = pytest.mark.dsocr_perf

PAGE_PX = (512, 512)
COUNTED = (1, 2, 3, 17, 40)
"""Numbers of the counted steps, from 1."""
TOKEN = 5
READ_TOKENS = 4


@pytest.mark.dsocr_level("L2")
def test_steps(scales: Scales, dsocr_check: Check) -> None:
    """Compare steps at several lengths, and their growth, which must come from attention only."""
    counted = scales.begin(PAGE_PX, FREE, scales.arch.family.quickest)
    taken, found = {}, []
    for step in range(1, COUNTED[-1] + 1):
        if step not in COUNTED:
            scales.subject.step(counted.state, TOKEN)
            continue
        with scales.counting() as flops:
            scales.subject.step(counted.state, TOKEN)
        length = scales.arch.family.cache.length(counted.work.prompt_tokens, step)
        taken[length] = flops.algorithmic
        found.append(step_of(scales.arch, counted.work, length, flops))
    for short, long in pairwise(taken):
        grown = [decode_step(scales.arch, counted.work, length).cost.attention_flops for length in (short, long)]
        what = f"decode/growth from {short} to {long} positions"
        found.append(as_expected(what, taken[long] - taken[short], grown[1] - grown[0], "the growth of attention"))
    dsocr_check(found)


def test_read(scales: Scales, dsocr_check: Check) -> None:
    """Compare a whole reading: vision once, the prompt once, and a step for each further token."""
    work = scales.work(PAGE_PX, FREE, scales.arch.family.quickest, READ_TOKENS)
    dsocr_check([page_of(scales.arch, work, scales.read(work, FREE))])
