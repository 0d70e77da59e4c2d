"""Greedy decoding: the best token that the n-gram rule allows, until EOS or the ceiling.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from pytest_dsocr.contract.policy import DecodePolicy, NgramBan
from pytest_dsocr.engine.pipeline import DecodeState, Pipeline
from pytest_dsocr.engine.protocol import CacheT


def generate(
    pipeline: Pipeline[CacheT],
    state: DecodeState[CacheT],
    prompts: Sequence[Sequence[int]],
    policy: DecodePolicy,
    pad_id: int,
) -> Iterator[list[int]]:
    """Yield one token a row until every row has ended; a row that has ended gives ``pad_id``.

    Args:
        pipeline: the stages that decode.
        state: a prefilled state with as many rows as ``prompts``; it moves on.
        prompts: each row's prompt ids, which the n-gram rule counts as well.
        policy: when to stop and what not to repeat.
        pad_id: what an ended row is fed and gives.
    """
    bans = [NgramBan(policy.no_repeat_ngram_size, prompt) for prompt in prompts]
    ended = [False] * len(prompts)
    tokens: list[int] = []
    for _ in range(policy.max_new_tokens):
        if tokens:
            pipeline.decode_step(state, tokens)
        best = pick(state.logits, [ban.banned() for ban in bans])
        tokens = [pad_id if end else token for end, token in zip(ended, best, strict=True)]
        yield tokens
        for ban, token in zip(bans, tokens, strict=True):
            ban.push(token)
        ended = [end or token == policy.eos_id for end, token in zip(ended, tokens, strict=True)]
        if all(ended):
            return


def pick(logits: Tensor, banned: Sequence[Sequence[int]]) -> list[int]:
    """Give each row's best token of ``[B, V]`` that is not banned; the first of equals."""
    if any(banned):
        logits = logits.clone()
        for row, tokens in enumerate(banned):
            logits[row, list(tokens)] = -torch.inf
    best: list[int] = logits.argmax(dim=-1).tolist()
    return best
