"""The choices of a subject's text, along the engine's logits."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.describe.choices import of_choices
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.measured import measured, measured_in_time
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.feeding import choices_of, describe_fed, without_end
from pytest_dsocr.explain.question import PageRead
from pytest_dsocr.explain.texts import TextPage


def describe_choices(
    engine: Engine[Any], read: PageRead, others: Sequence[PageRead] = (), *, is_sure: bool
) -> list[Description]:
    """Describe the rule by which a text's tokens were chosen or fed; return nothing if the best ones were.

    Args:
        engine: an engine without a mistake.
        read: the page with the subject's text.
        others: pages that were read before.
        is_sure: whether the subject's own logits are known to be right.
    """
    with torch.no_grad():
        page, *before = [TextPage(engine, one) for one in (read, *others)]
        cuts, ends = _cuts(page), [len(cut) for one in before for cut in _cuts(one)[-1:]]
        if cuts:  # a text that is stripped is made of other tokens at its end
            page.ids = [*cuts[-1], engine.policy.eos_id]
        choices = replace(without_end(choices_of(page)), ends=ends, blanks=max(0, len(cuts) - 1))
        fed = [*measured_in_time(partial(describe_fed, is_sure=is_sure), page, choices, before)]
    return fed or [*measured(partial(of_choices, is_sure=is_sure), choices)][:1]


def _cuts(page: TextPage) -> list[Sequence[int]]:
    """Return the first tokens of the reference that make a page's text, if it breaks off; several if blanks follow."""
    text, tokens, decode = page.read.text, page.read.reference_tokens, page.engine.tokenizer.decode
    if len(text) >= len(page.right) or not page.right.startswith(text):
        return []
    every = (tokens[:size] for size in range(1, len(tokens)))
    return [some for some in every if clean_output(decode(some)) == text]
