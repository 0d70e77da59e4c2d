"""Batches of a subject that offers ``read_many``: each page's text must be the one that it has alone.

Two of the run's pages have prompts of equal length. Three other pages do not, and ``mini`` ends one of them early.

In float32 the texts must be equal. Narrower dtypes round otherwise in a batch, which may change a near tie. There each
text must be nearest to its own page's.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.verdict import Comparison, Reason, Verdict, not_compared
from pytest_dsocr.engine.places import MINI, split_model
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.config import Config

from ..contract.asked import own_preset
from .test_pages import ALIKE

MAX_NEW_TOKENS, OF_UNLIKE = 12, 20
ORDER = (1, 0, 1)
"""Indices of the pages in a batch: not in their own order, and one page twice."""
OWN = own_preset("own", base_size=512, image_size=640, crop=True)
"""Preset with crops that costs little."""
WHAT = "text/together"
EXCHANGED = "it is nearer to another page of the batch: check that texts, caches and features are not exchanged"
UNLIKE = "the pages differ in length: check that each has its own mask, positions and cache, and ends at its own EOS"
ROUNDED = "nearest to its own page, which rounding in a narrow dtype explains"


@pytest.mark.dsocr_level("L0")
def test_each_page_reads_as_alone(
    two_pages: tuple[Path, Path], family: ModelSpec, dsocr_subject: Any, dsocr_config: Config, dsocr_check: Check
) -> None:
    cases = [make_case(page, "markdown", family.quickest, MAX_NEW_TOKENS, family=family) for page in two_pages]
    dsocr_check(_together(dsocr_subject, dsocr_config, cases, ORDER))


@pytest.mark.dsocr_level("L0")
def test_pages_of_unlike_lengths_read_as_alone(
    tmp_path: Path, first_page: Path, family: ModelSpec, dsocr_subject: Any, dsocr_config: Config, dsocr_check: Check
) -> None:
    pages = _unlike_pages(tmp_path)
    if split_model(dsocr_config.checkpoint)[1] != MINI:  # which reads something of any page
        pages[1] = first_page
    cases = [make_case(page, "markdown", OWN, OF_UNLIKE, family=family) for page in pages]
    dsocr_check(_together(dsocr_subject, dsocr_config, cases, range(len(pages)), UNLIKE))


def _together(
    subject: Any, config: Config, cases: Sequence[Case], order: Sequence[int], why: str = ""
) -> list[Comparison]:
    """Compare the texts of a batch in this order with those of each case alone."""
    from pytest_dsocr.subjects.checked import CheckedSubject

    asked = CheckedSubject(subject)
    if not asked.reads_many:
        return [not_compared(WHAT, Reason.NOT_OFFERED)]
    alone = [asked.read(case) for case in cases]
    if len({*alone}) == 1:
        return [not_compared(WHAT, Reason.TELLS_NOTHING, ALIKE)]
    is_exact = str(getattr(subject, "dtype", config.dtype)) == "float32"
    texts = asked.read_many([cases[at] for at in order])
    return [_as_alone(text, at, alone, is_exact, why) for at, text in zip(order, texts, strict=True)]


def _as_alone(text: str, own: int, alone: Sequence[str], is_exact: bool, why: str) -> Comparison:
    """Compare a page's text in a batch with its text alone, and report if it is nearer to another page's."""
    from pytest_dsocr.compare.text import compare_text

    compared = compare_text(text, alone[own], 0.0)
    named = replace(compared, what=WHAT)
    if compared.verdict is Verdict.MATCH:
        return named
    others = [_edits(text, other) for at, other in enumerate(alone) if at != own]
    if min(others) < _edits(text, alone[own]):
        named = replace(named, measured=f"{compared.measured}; {EXCHANGED}")
    elif not is_exact:
        return replace(named, verdict=Verdict.DRIFT, measured=f"{compared.measured}; {ROUNDED}")
    return replace(named, details=(why, *compared.details)) if why else named


def _unlike_pages(folder: Path) -> list[Path]:
    """Return a page without crops that ``mini`` ends early, one with two crops, and one without any."""
    from ..contract.pages import write_page, write_wide

    return [write_page("tiny", folder), write_wide(folder), write_page("exactly_640", folder)]


def _edits(text: str, other: str) -> int:
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.distance(text, other)
