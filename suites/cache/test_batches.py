"""Several pages read together, of a subject that offers ``read_many``: each as alone, whatever is beside it.

In float32 the texts are equal. In narrower dtypes a batch rounds otherwise than a page alone, so that a near tie may go
the other way; there each text must be nearest to its own page's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.verdict import Comparison, Verdict, not_compared
from pytest_dsocr.judge.config import Config
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.plugin.check import Check

from .test_pages import ALIKE
from .walk import QUICK

MAX_NEW_TOKENS = 12
ORDER = (1, 0, 1)
"""Which of two pages are read together: not in their own order, and one of them twice."""
WHAT = "text/together"
EXCHANGED = "it is another page's of the batch: texts exchanged, or the cache or features of a page beside it"
ROUNDED = "nearest to its own page's, as rounding in a narrow dtype may have it"


@pytest.mark.dsocr_level("L0")
def test_each_page_reads_as_alone(
    two_pages: tuple[Path, Path], dsocr_subject: Any, dsocr_config: Config, dsocr_check: Check
) -> None:
    from pytest_dsocr.subjects.checked import CheckedSubject

    asked = CheckedSubject(dsocr_subject)
    if not asked.reads_many:
        dsocr_check([not_compared(WHAT, Reason.NOT_OFFERED)])
        return
    cases = [make_case(page, "markdown", QUICK, MAX_NEW_TOKENS) for page in two_pages]
    alone = [asked.read(case) for case in cases]
    if alone[0] == alone[1]:
        dsocr_check([not_compared(WHAT, Reason.TELLS_NOTHING, ALIKE)])
        return
    is_exact = str(getattr(dsocr_subject, "dtype", dsocr_config.dtype)) == "float32"
    texts = asked.read_many([cases[at] for at in ORDER])
    dsocr_check(_as_alone(text, at, alone, is_exact) for at, text in zip(ORDER, texts, strict=True))


def _as_alone(text: str, own: int, alone: Sequence[str], is_exact: bool) -> Comparison:
    """Compare a text of several with the page's own reading, and say where it is another page's."""
    from pytest_dsocr.compare.text import compare_text

    mine = compare_text(text, alone[own], 0.0)
    named = replace(mine, what=WHAT)
    if mine.verdict is Verdict.MATCH:
        return named
    if _edits(text, alone[1 - own]) < _edits(text, alone[own]):
        return replace(named, measured=f"{mine.measured}; {EXCHANGED}")
    return named if is_exact else replace(named, verdict=Verdict.DRIFT, measured=f"{mine.measured}; {ROUNDED}")


def _edits(text: str, other: str) -> int:
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.distance(text, other)
