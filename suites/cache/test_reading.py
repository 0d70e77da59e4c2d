"""Texts of ``read``, compared with the choices by the subject's own steps under the vendor's rule for repetition.

On some drawn pages ``mini`` repeats itself, and the rule forbids its best token. A loop without the rule, or with a
shorter window, continues with another text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.engine.places import MINI, split_model
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.records.case import Case, make_case

from .ways import TextWays

if TYPE_CHECKING:
    from pytest_dsocr.contract.prompt import TextTokenizer
    from pytest_dsocr.records.config import Config
    from pytest_dsocr.subjects.checked import CheckedSubject

PAGES = {"exactly_640": 204, "alpha": 176}
"""Drawn pages in Tiny, with the number of tokens after which the rule has forbidden the best one.

The first page repeats an n-gram from more than 90 tokens before; the n-gram of the second ends with the tag of a cell.
"""
OF_PROMPTS = 8
OF_OTHERS = 24
"""Tokens to read with another checkpoint, which does not repeat itself on these pages."""
CACHED = "check: whether a text is cached by its page without the prompt"
OWN_STEPS = "the choice of its own steps under the vendor's rule for repetition"
Read = Callable[[Case], tuple[str, str]]


@pytest.fixture
def read(dsocr_subject: Any, dsocr_config: Config) -> Read:
    """Return :func:`both_ways` of the subject."""
    return both_ways(dsocr_subject, dsocr_config)


def both_ways(subject: Any, config: Config) -> Read:
    """Return a function from a case to the text of ``read`` and that of the vendor's loop on the subject's logits."""
    from pytest_dsocr.engine.checkpoint import resolve
    from pytest_dsocr.subjects.checked import CheckedSubject

    asked, tokenizer = CheckedSubject(subject), resolve(config.checkpoint).tokenizer
    return lambda case: (asked.read(case), clean_output(tokenizer.decode(_choices(asked, case, tokenizer))))


@pytest.mark.dsocr_slow
@pytest.mark.dsocr_level("L2")
@pytest.mark.parametrize("name", PAGES)
def test_read_says_what_its_own_steps_choose(
    name: str,
    tmp_path: Path,
    read: Read,
    text_ways: TextWays,
    family: ModelSpec,
    dsocr_config: Config,
    dsocr_check: Check,
) -> None:
    from ..contract.pages import write_page

    ceiling = PAGES[name] if split_model(dsocr_config.checkpoint)[1] == MINI else OF_OTHERS
    case = make_case(write_page(name, tmp_path), "markdown", family.quickest, ceiling, family=family)
    dsocr_check([text_ways.compare("read", case, *read(case), OWN_STEPS)])


@pytest.mark.dsocr_level("L2")
def test_a_page_without_text_is_not_made_to_have_some(
    tmp_path: Path, read: Read, text_ways: TextWays, family: ModelSpec, dsocr_check: Check
) -> None:
    """Read a page too small for text, on which ``mini`` ends at once."""
    from ..contract.pages import write_page

    case = make_case(write_page("tiny", tmp_path), "markdown", family.quickest, OF_OTHERS, family=family)
    why = "the choice of its own steps: EOS may be the first token, as no minimum number of tokens is set"
    dsocr_check([text_ways.compare("read/page without text", case, *read(case), why)])


@pytest.mark.dsocr_level("L2")
def test_another_prompt_of_a_page_is_another_reading(
    tmp_path: Path, read: Read, text_ways: TextWays, family: ModelSpec, dsocr_check: Check
) -> None:
    """Read a page with two prompts; a subject that caches texts by page alone fails."""
    from ..contract.pages import write_page

    page, prompts = write_page("alpha", tmp_path), ("markdown", DEEPSEEK_OCR.prompts["free"])
    _, other = cases = [make_case(page, one, family.quickest, OF_PROMPTS, family=family) for one in prompts]
    first, (text, chosen) = map(read, cases)
    found = text_ways.compare("read/another prompt", other, text, chosen, "the choice of its own steps")
    is_cached = found.verdict is Verdict.WRONG and text == first[0]
    dsocr_check([replace(found, details=(CACHED, *found.details)) if is_cached else found])


def _choices(asked: CheckedSubject, case: Case, tokenizer: TextTokenizer) -> list[int]:
    """Return the choices of the vendor's loop on the subject's logits, by the model's rule or else the subject's."""
    from pytest_dsocr.engine.pipeline import pick
    from pytest_dsocr.subjects.forced_steps import go_on
    from pytest_dsocr.subjects.retrace import rule_of

    inputs = asked.inputs(case)
    ban = rule_of(asked, case).ban(inputs["input_ids"][0].tolist())
    state, logits = asked.prefill(inputs, asked.vision(inputs).get("vision_fusion"))
    tokens = pick(logits[None], [ban.banned()])
    ban.push(tokens[-1])
    go_on(partial(asked.step, state), tokens, ban, tokenizer.special.eos, case.max_new_tokens)
    return tokens
