"""What a subject's own steps come to where they first choose another token than the reference's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from pytest_dsocr.contract.policy import DecodePolicy, NgramBan
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.engine.pipeline import pick
from pytest_dsocr.observation.answer import ForcedStep
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import Observation, Output
from pytest_dsocr.subjects.checked import CheckedSubject


@dataclass(frozen=True)
class Continuing:
    """A subject's stages on one case, gone through once more along its own choices.

    Args:
        asked: the subject, of stages.
        inputs: what it made of the case.
        vision_fusion: its features; None where the gate is shut.
        case: what is read.
        tokenizer: the checkpoint's, for what a subject says of its tokens is not what they mean.
    """

    asked: CheckedSubject
    inputs: Mapping[str, Tensor]
    vision_fusion: Tensor | None
    case: Case
    tokenizer: TextTokenizer

    def output(self, forced: Sequence[ForcedStep], theirs: Observation) -> Output | None:
        """Give what comes of the reference's tokens before the first choice that differs, that choice, and its own on.

        None where no choice differs, or where one does that is no tie under any limits: then nothing is excused.
        """
        differing = [k for k, step in enumerate(theirs.steps) if forced[k].token != step.token]
        if not differing or not all(forced[k].may_tie(theirs.steps[k]) for k in differing):
            return None
        first = differing[0]
        kept = [*theirs.token_ids[:first], forced[first].token]
        return Output.of(self.tokenizer.decode([*kept, *self._after(kept)]), self.case.page)

    def _after(self, kept: Sequence[int]) -> Iterator[int]:
        """Yield its own choices after the tokens ``kept``, to the end of the output."""
        policy = self.asked.policy or DecodePolicy(self.tokenizer.special.eos)
        ban = NgramBan(policy.no_repeat_ngram_size, [*self.inputs["input_ids"][0].tolist(), *kept])
        state, _ = self.asked.prefill(self.inputs, self.vision_fusion)
        for token in kept[:-1]:
            self.asked.step(state, token)
        last = kept[-1]
        for _ in range(len(kept), self.case.max_new_tokens):
            if last == policy.eos_id:
                return
            [last] = pick(self.asked.step(state, last)[None], [ban.banned()])
            ban.push(last)
            yield last
