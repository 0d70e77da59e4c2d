"""Batches of a subject that offers ``read_many``: each page's text must be the one that it has alone.

Two of the run's pages have prompts of equal length. Three other pages do not, and ``mini`` ends one of them early.

A batch rounds otherwise than a page alone, which may change a near tie. So a text that differs is right if the
subject's own steps lead to it, each to the best token or to one that ties with it.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_dsocr.compare.verdict import Comparison, Reason, Verdict, not_compared
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.state import of_ends
from pytest_dsocr.engine.places import MINI, split_model
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.config import Config

from ..contract.asked import own_preset, sizes_of
from .test_pages import alike
from .ways import TextWays

MAX_NEW_TOKENS, OF_UNLIKE = 12, 20
ORDER = (1, 0, 1)
"""Indices of the pages in a batch: not in their own order, and one page twice."""
OWN = own_preset("own", base_size=512, image_size=640, crop=True)
"""Preset with crops that costs little."""
WHAT = "text/together"
EXCHANGED = "it is the text of another page of the batch"
NEARER = "{edits} edits away from the text of another page of the batch, and {own} from its own"
ALONE = "the text that the page has alone; it is row {row} of {rows} in the batch"


@pytest.mark.dsocr_level("L0")
def test_each_page_reads_as_alone(
    two_pages: tuple[Path, Path], family: ModelSpec, text_ways: TextWays, dsocr_check: Check
) -> None:
    cases = [make_case(page, "markdown", family.quickest, MAX_NEW_TOKENS, family=family) for page in two_pages]
    dsocr_check(_together(text_ways, cases, ORDER))


@pytest.mark.dsocr_level("L0")
def test_pages_of_unlike_lengths_read_as_alone(
    tmp_path: Path, first_page: Path, family: ModelSpec, text_ways: TextWays, dsocr_config: Config, dsocr_check: Check
) -> None:
    pages = _unlike_pages(tmp_path, family)
    if split_model(dsocr_config.checkpoint)[1] != MINI:  # which reads something of any page
        pages[1] = first_page
    cases = [make_case(page, "markdown", sizes_of(OWN, family), OF_UNLIKE, family=family) for page in pages]
    dsocr_check(_together(text_ways, cases, range(len(pages))))


def _together(text_ways: TextWays, cases: Sequence[Case], order: Sequence[int]) -> list[Comparison]:
    """Compare the texts of a batch in this order with those of each case alone."""
    asked = text_ways.asked
    if not asked.reads_many:
        return [not_compared(WHAT, Reason.NOT_OFFERED)]
    alone = [asked.read(case) for case in cases]
    if len({*alone}) == 1:
        return [not_compared(WHAT, Reason.TELLS_NOTHING, alike(alone[0]))]
    texts = asked.read_many([cases[at] for at in order])
    compared = (
        (text_ways.compare(WHAT, cases[at], text, alone[at], ALONE.format(row=row, rows=len(texts))), text, at)
        for row, (at, text) in enumerate(zip(order, texts, strict=True), 1)
    )
    found = [_exchanged(*one, alone) for one in compared]
    if any(one.verdict is Verdict.WRONG for one in found):
        return _described(text_ways, found, [cases[at] for at in order], texts, [alone[at] for at in order])
    return found


def _described(
    text_ways: TextWays, found: Sequence[Comparison], cases: Sequence[Case], texts: Sequence[str], alone: Sequence[str]
) -> list[Comparison]:
    """Return the comparisons with the rows' ends or the way to compute the batch that gives these texts, if known."""
    from pytest_dsocr.explain.batch import describe_batch

    known = _ends(text_ways, cases, texts, alone)
    known = known or describe_batch(text_ways.follower().subject.engine, cases, texts)
    details = (f"check: {known.text}",) if known else ()
    return [replace(one, details=(*details, *one.details)) if one.verdict is Verdict.WRONG else one for one in found]


def _ends(text_ways: TextWays, cases: Sequence[Case], texts: Sequence[str], alone: Sequence[str]) -> Description | None:
    """Return that rows which are right up to their ends end with another row; None if any row is wrong otherwise."""
    cut, whole = dict[int, int](), dict[int, int]()
    for row, (case, text, own) in enumerate(zip(cases, texts, alone, strict=True), 1):
        if not own.startswith(text):
            return None
        (whole if text == own else cut)[row] = len(text_ways.retraced(case, text).tokens)
    return of_ends(cut, whole)


def _exchanged(found: Comparison, text: str, own: int, alone: Sequence[str]) -> Comparison:
    """Return WRONG for a text that is no tie, and nearer to that of another page of the batch."""
    nearest, edits = min(_edits(text, other) for at, other in enumerate(alone) if at != own), _edits(text, alone[own])
    if found.verdict in (Verdict.MATCH, Verdict.TIE_FLIP) or nearest >= edits:
        return found
    how = NEARER.format(edits=nearest, own=edits) if nearest else EXCHANGED
    return replace(found, verdict=Verdict.WRONG, measured=f"{found.measured}; {how}")


def _unlike_pages(folder: Path, family: ModelSpec) -> list[Path]:
    """Return a page without crops that ``mini`` ends early, one with two crops, and one without any."""
    from ..contract.pages import write_page, write_wide

    return [write_page("tiny", folder), write_wide(folder, family), write_page("exactly_640", folder)]


def _edits(text: str, other: str) -> int:
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.distance(text, other)
