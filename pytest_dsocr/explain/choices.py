"""The choices of a subject's text, along the engine's logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from pytest_dsocr.describe.choices import Choices, of_choices
from pytest_dsocr.describe.description import Description
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.question import PageRead
from pytest_dsocr.explain.texts import TextPage


def describe_choices(engine: Engine[Any], read: PageRead, *, is_sure: bool) -> list[Description]:
    """Describe the rule by which a text's tokens were chosen; return nothing if the best ones were.

    Args:
        engine: an engine without a mistake.
        read: the page with the subject's text.
        is_sure: whether the subject's own logits are known to be right.
    """
    with torch.no_grad():
        page = TextPage(engine, read)
        tokens = page.ids[: page.case.max_new_tokens]
        logits = torch.cat([page.state.logits, *page.known[: len(tokens) - 1]]).float().cpu()
    prompt = page.clean.inputs.input_ids[0].tolist()
    ban = engine.policy.ban(prompt)
    for row, token in zip(logits, tokens, strict=True):
        row[ban.banned()] = -torch.inf
        ban.push(token)
    choices = Choices(tokens, logits, prompt, engine.policy.eos_id, lambda token: engine.tokenizer.decode([token]))
    last = len(tokens) - 1
    if last in choices.other and choices.other != [last]:  # the end may be that of the server's loop, and not an EOS
        choices = replace(choices, tokens=tokens[:last], logits=logits[:last])
    return [*of_choices(choices, is_sure=is_sure)][:1]
