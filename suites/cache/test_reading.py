"""``read`` against the subject's own stages, on pages that make ``mini`` repeat itself, so that its rule is needed.

The rule forbids the best token there; a loop that lacks it, or looks at a short window, says something else from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.compare.verdict import Comparison, Verdict, as_expected
from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.engine.places import MINI, split_model
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.records.case import Case, make_case

if TYPE_CHECKING:
    from pytest_dsocr.contract.prompt import TextTokenizer
    from pytest_dsocr.records.config import Config
    from pytest_dsocr.subjects.checked import CheckedSubject

PAGES = {"exactly_640": 204, "alpha": 176}
"""Drawn pages in Tiny, and after how many tokens the rule has forbidden the best one. The n-gram that the first page
repeats was written more than 90 tokens before; that of the second ends with the tag of a table's cell."""
OF_PROMPTS = 8
OF_OTHERS = 24
"""Tokens where another checkpoint is read, which these pages do not make repeat itself."""
Read = Callable[[Case], tuple[str, str]]


@pytest.fixture
def read(dsocr_subject: Any, dsocr_config: Config) -> Read:
    """See :func:`both_ways`."""
    return both_ways(dsocr_subject, dsocr_config)


def both_ways(subject: Any, config: Config) -> Read:
    """Return what gives, of a case, what ``read`` says and what the vendor's loop chooses by the subject's logits."""
    from pytest_dsocr.engine.checkpoint import resolve
    from pytest_dsocr.subjects.checked import CheckedSubject

    asked, tokenizer = CheckedSubject(subject), resolve(config.checkpoint).tokenizer
    return lambda case: (asked.read(case), clean_output(tokenizer.decode(list(_choices(asked, case, tokenizer)))))


@pytest.mark.dsocr_slow
@pytest.mark.dsocr_level("L2")
@pytest.mark.parametrize("name", PAGES)
def test_read_says_what_its_own_steps_choose(
    name: str, tmp_path: Path, read: Read, family: ModelSpec, dsocr_config: Config, dsocr_check: Check
) -> None:
    from pytest_dsocr.compare.text import compare_text

    from ..contract.pages import write_page

    ceiling = PAGES[name] if split_model(dsocr_config.checkpoint)[1] == MINI else OF_OTHERS
    case = make_case(write_page(name, tmp_path), "markdown", family.quickest, ceiling, family=family)
    text = compare_text(*read(case), 0.0)
    agrees = "agrees" if text.verdict is Verdict.MATCH else "disagrees"
    measured = f"{agrees} with the subject's own steps, by the vendor's rule"
    dsocr_check([Comparison("read", text.verdict, measured), text])


@pytest.mark.dsocr_level("L2")
def test_a_page_without_text_is_not_made_to_have_some(
    tmp_path: Path, read: Read, family: ModelSpec, dsocr_check: Check
) -> None:
    """``mini`` ends at once on a page too small to read."""
    from ..contract.pages import write_page

    text, own = read(make_case(write_page("tiny", tmp_path), "markdown", family.quickest, OF_OTHERS, family=family))
    why = "what its own steps choose: EOS may be the first token, and no least number of tokens is asked for"
    dsocr_check([as_expected("read/page without text", text, own, why)])


@pytest.mark.dsocr_level("L2")
def test_another_prompt_of_a_page_is_another_reading(
    tmp_path: Path, read: Read, family: ModelSpec, dsocr_check: Check
) -> None:
    """What is kept of a page by its name or its pixels must not be what was read of it."""
    from ..contract.pages import write_page

    page, prompts = write_page("alpha", tmp_path), ("markdown", DEEPSEEK_OCR.prompts["free"])
    _, (text, own) = (read(make_case(page, one, family.quickest, OF_PROMPTS, family=family)) for one in prompts)
    why = "what its own steps choose, and not what is kept of the page and found without the prompt"
    dsocr_check([as_expected("read/another prompt", text, own, why)])


def _choices(asked: CheckedSubject, case: Case, tokenizer: TextTokenizer) -> Iterator[int]:
    """Yield what the vendor's loop chooses by the subject's logits: by its rule, or the caller's where it has none."""
    from pytest_dsocr.engine.pipeline import pick

    inputs = asked.inputs(case)
    decoding = case.family.decoding
    rule = decoding if decoding.no_repeat_ngram_size else asked.policy or decoding
    policy = replace(rule, eos_id=tokenizer.special.eos)
    ban = policy.ban(inputs["input_ids"][0].tolist())
    state, logits = asked.prefill(inputs, asked.vision(inputs).get("vision_fusion"))
    for left in range(case.max_new_tokens, 0, -1):
        [token] = pick(logits[None], [ban.banned()])
        yield token
        if token == policy.eos_id or left == 1:
            return
        ban.push(token)
        logits = asked.step(state, token)
