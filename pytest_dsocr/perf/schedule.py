from __future__ import annotations

from collections.abc import Sequence

from pytest_dsocr.perf.judgement import Judgement

LOOKS = (12, 24, 48)


def next_rounds(judgements: Sequence[Judgement], taken: int, looks: Sequence[int] = LOOKS) -> int:
    if judgements and all(j.settled for j in judgements):
        return 0
    return next((k - taken for k in looks if k > taken), 0)


def order(taken: int, count: int) -> list[int]:
    return [(0, 1, 1, 0)[(taken + k) % 4] for k in range(count)]
