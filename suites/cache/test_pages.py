"""Pages read one after the other: the first page again, after another one, must read as before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.base.words import quoted
from pytest_dsocr.compare.readings import ALIKE, STATE
from pytest_dsocr.compare.verdict import Comparison, Reason, Symptom, Verdict, as_expected, not_compared
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.subjects.kv_probe import KvProbe

from .walk import Walk, compare_lengths
from .ways import TextWays, Ways, of_state

if TYPE_CHECKING:
    from torch import Tensor

MAX_NEW_TOKENS = 24
AFTER_ANOTHER = "the text before another page was read"
AS_BEFORE = "the second page is read as the first one was, which is right"
SHOWN = frozenset((Symptom.STATE,))


def alike(text: str) -> str:
    """Return the reason that pages with one text are not compared."""
    said = f"the text {quoted(text, 40)}" if text else "no text"
    otherwise = "if it is wrong, fix that first; if it is right, name pages with other texts (--dsocr-pages)"
    return f"each page gives {said}, which shows nothing here; {otherwise}"


@pytest.mark.dsocr_level("L2")
def test_a_prefill_begins_with_an_empty_cache(
    two_pages: tuple[Path, Path], walk: Walk, ways: Ways, dsocr_subject: Any, dsocr_check: Check
) -> None:
    _, before = walk.start()
    other = Walk.along(dsocr_subject, two_pages[1], family=walk.family)
    state, logits = other.start()
    other.steps(state, other.tokens)
    state, after = walk.start()
    again = ways.logits("prefill/again", after, before)
    signs = again.signs | ({Symptom.STATE} if again.verdict is Verdict.WRONG else set())
    held = compare_lengths(KvProbe(state), walk.prompt_tokens, "of a page after another", "the tokens of the prompt")
    dsocr_check(
        [
            *held,
            replace(again, signs=signs),
            _distinguished("vision_fusion", other.features, walk.features, "features", _same_page(other, walk)),
            _distinguished("prefill", logits, before, "logits", _same_page(other, walk)),
        ]
    )


@pytest.mark.dsocr_level("L0")
def test_the_first_page_reads_the_same_again(
    two_pages: tuple[Path, Path], tmp_path: Path, family: ModelSpec, text_ways: TextWays, dsocr_check: Check
) -> None:
    """Read three pages from one file, as in a drop folder: each text must be of the file's current content."""
    from pytest_dsocr.contract.image import load_image

    file = tmp_path / "page.png"

    def case(page: Path) -> Case:
        return make_case(page, "markdown", family.quickest, MAX_NEW_TOKENS, family=family)

    def read(page: Path) -> str:
        return text_ways.asked.read(case(page))

    def read_in_place(page: Path) -> str:
        load_image(page).save(file, compress_level=1)
        return read(file)

    first, other, again = map(read_in_place, (*two_pages, two_pages[0]))
    if first == other:
        apart = read(two_pages[1])
        by_engine = [text_ways.follower().read(case(page)) for page in two_pages] if apart == other != "" else []
        dsocr_check([_of_earlier(other, *by_engine) if by_engine else _by_name(other, apart)])
    else:
        found = text_ways.compare("text/read again", case(two_pages[0]), again, first, AFTER_ANOTHER)
        if found.verdict is Verdict.WRONG:
            texts = [again]
            while texts[-1] == again and len(texts) < ALIKE:
                _, later = map(read_in_place, two_pages[::-1])
                texts.append(later)
            found = of_state(found, first, texts)
        dsocr_check([found])


def _by_name(found: str, apart: str) -> Comparison:
    """Compare a text that equals the previous page's in the same file with the text of the page's own file."""
    if found == apart:
        return not_compared("text/read again", Reason.TELLS_NOTHING, alike(found))
    compared = as_expected("text/read again", found, apart, "the text of the page in its own file")
    return replace(compared, details=("check: whether a page is cached by its file name instead of its content",))


def _of_earlier(found: str, first: str, own: str) -> Comparison:
    """Compare a second page's text, which is that of the first one, with what the engine reads of both."""
    name = "text/another page"
    if found != first or first == own:
        return not_compared("text/read again", Reason.TELLS_NOTHING, alike(found))
    compared = as_expected(name, found, own, "the text of the second page, as the engine reads it")
    check = f"check: whether it differs {STATE}"
    return replace(compared, measured=f"{AS_BEFORE}; {compared.measured}", details=(check,), signs=SHOWN)


def _same_page(one: Walk, other: Walk) -> bool:
    from torch import equal

    return equal(one.inputs["images_ori"], other.inputs["images_ori"])


def _distinguished(stage: str, found: Tensor, before: Tensor, what: str, same_page: bool) -> Comparison:
    """Compare two pages, which must differ although their ids are equal: a cache by ids alone mixes them up."""
    from torch import equal

    name = f"{stage}/another page"
    if same_page:
        return not_compared(name, Reason.TELLS_NOTHING, "both pages are equal; name pages that differ (--dsocr-pages)")
    same = before.shape == found.shape and equal(before, found)
    why = "else it uses the previous page's features or cache, as both prompts have the same ids"
    return as_expected(name, "equal" if same else f"other {what}", f"other {what}", why)
