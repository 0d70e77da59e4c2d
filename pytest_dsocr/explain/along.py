"""The decoder along known tokens: a text is decoded in two passes instead of many steps."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.engine.pipeline import DecodeState, Pipeline
from pytest_dsocr.models.spec import DECODE

MOST_AT_ONCE = 512
"""Largest number of tokens in one pass, which bounds the memory of attention."""


def copied(state: DecodeState[Any]) -> DecodeState[Any]:
    """Return a copy of a state, since decoding changes it."""
    return DecodeState(copy.deepcopy(state.cache), state.logits, state.last_embeds, [])


class Along:
    """Decoder with a pipeline's interface: known tokens in two passes, then step by step once another token is fed.

    Args:
        pipeline: the pipeline that decodes.
        ids: the known tokens.
        first: number of tokens in the first pass, after which most mistakes have shown.
        known: logits after the first tokens, if they are known.
    """

    def __init__(self, pipeline: Pipeline[Any], ids: Sequence[int], first: int, known: Sequence[Tensor] = ()) -> None:
        self.pipeline, self.first, self.are_known = pipeline, first, bool(known)
        self.ids, self.logits = [*ids][: len(known) or None], [*known]
        """Logits after each token that has passed."""
        self.fed = 0

    def decode_step(self, state: DecodeState[Any], tokens: Sequence[int]) -> None:
        """Feed one token, and put its logits into the state."""
        if [*tokens] != self.ids[self.fed : self.fed + 1]:
            at = 0 if self.are_known else self.fed
            while at < self.fed:
                at += len(self._passed(state, at, self.fed))
            for _ in self.logits[self.fed :] if not self.are_known else ():
                state.cache.drop_last()
            self.are_known, self.ids, self.logits, self.fed = False, [], [], 0
            self.pipeline.decode_step(state, tokens)
            return
        if self.fed == len(self.logits):
            behind = self.first if self.fed < self.first else len(self.ids)
            self.logits += self._passed(state, self.fed, behind)
        state.logits = self.logits[self.fed]
        self.fed += 1

    def _passed(self, state: DecodeState[Any], first: int, behind: int) -> Sequence[Tensor]:
        """Feed known tokens at once, as many as memory and a ring allow."""
        room = max(1, min(MOST_AT_ONCE, (self.pipeline.model.family.cache.ring or MOST_AT_ONCE) - first))
        return passed(self.pipeline, state, self.ids[first : min(behind, first + room)])

    def redecode_last(self, state: DecodeState[Any]) -> None:
        """Decode the prompt's last token again."""
        self.pipeline.redecode_last(state)


def passed(pipeline: Pipeline[Any], state: DecodeState[Any], tokens: Sequence[int]) -> Sequence[Tensor]:
    """Feed several tokens at once, and return the logits ``[1, V]`` after each."""
    model = pipeline.model
    with pipeline.running(DECODE):
        embeds = model.embed(torch.tensor([tokens], device=model.device))
        logits: Tensor = model.decode(embeds, state.cache, all_logits=True)[0]
    return list(logits[:, None])
