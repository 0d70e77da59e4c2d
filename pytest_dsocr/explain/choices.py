"""The choices of a subject's text, along the engine's logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

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
        page = TextPage(engine, read)
        before = [TextPage(engine, one) for one in others]
        ends = [*filter(None, map(_early_end, before))]
        choices = replace(without_end(choices_of(page)), ends=ends)
        fed = [*measured_in_time(partial(describe_fed, is_sure=is_sure), page, choices, before)]
    return fed or [*measured(partial(of_choices, is_sure=is_sure), choices)][:1]


def _early_end(page: TextPage) -> int | None:
    """Return the number of tokens after which a page's text breaks off; None if it does not."""
    is_part = len(page.read.text) < len(page.right) and page.right.startswith(page.read.text)
    return len(page.ids) - 1 if is_part else None
