"""A session as a subject: everything that is asked of a subject about one case."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from pytest_dsocr.case import Case
from pytest_dsocr.compare.output import MMD
from pytest_dsocr.compare.tokens import ForcedStep
from pytest_dsocr.contract.artifacts import write_artifacts
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.contract.mmd import clean_output
from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.engine.greedy import generate, pick
from pytest_dsocr.engine.pipeline import DecodeState, Vision
from pytest_dsocr.engine.session import Session
from pytest_dsocr.observation import (
    BEST_OF_PREFILL,
    Artefact,
    Best,
    InputsDigest,
    Observation,
    Output,
    Seam,
    SpanSeen,
    Step,
)

OnToken = Callable[[int], None]


class SessionSubject:
    """A session that answers what is asked of a subject.

    Args:
        session: any session, around the engine's model or the vendor's.
        keep_values: keep seams whole, for a comparison with a live reference.
    """

    def __init__(self, session: Session[Any], *, keep_values: bool = False) -> None:
        self.session = session
        self.keep_values = keep_values

    @property
    def dtype(self) -> str:
        """What the weights are in, such as ``float32``."""
        return str(self.session.model.dtype).removeprefix("torch.")

    def follow(
        self, case: Case, theirs: Observation, on_token: OnToken = lambda step: None
    ) -> tuple[Observation, tuple[ForcedStep, ...]]:
        """Read ``case`` along the reference's tokens, and freely where the two would part.

        Where every choice is the reference's and decoding ends where the reference's did, decoding freely gives the
        same steps, and is not done again.
        """
        inputs = self.session.prepare(case.page, prompt=case.prompt, preset=case.preset)
        state = self.session.prefill(inputs)
        seams, prefill, visions = _seams(state), state.logits[0], state.visions
        forced = tuple(self._forced(inputs, state, theirs.steps, on_token))
        choices = [step.token for step in forced]
        if choices == list(theirs.token_ids) and self._ends(case, choices):
            steps = tuple(Step(step.token, step.best) for step in forced)
        else:
            steps = tuple(self._free(case, inputs, visions, on_token))
        observation = Observation(
            case_id=case.id,
            inputs=InputsDigest.of(inputs.tensors, keep_values=self.keep_values),
            seams={name: Seam.of(tensor, keep_values=self.keep_values) for name, tensor in seams.items()},
            prefill_best=Best.of(prefill, BEST_OF_PREFILL),
            steps=steps,
            output=self._output(case, [step.token for step in steps]),
        )
        return observation, forced

    def _forced(
        self, inputs: Inputs, state: DecodeState[Any], theirs: Sequence[Step], on_token: OnToken
    ) -> Iterator[ForcedStep]:
        ban = self._ban(inputs)
        for k, step in enumerate(theirs):
            logits = state.logits[0] if k == 0 else self.session.decode_step(state, theirs[k - 1].token)[0]
            [choice] = pick(logits[None], [ban.banned()])
            yield ForcedStep(choice, Best.of(logits), tuple(logits[list(step.best.ids)].tolist()))
            ban.push(step.token)
            on_token(k)

    def _free(self, case: Case, inputs: Inputs, visions: list[Vision], on_token: OnToken) -> Iterator[Step]:
        state = self.session.pipeline.prefill(inputs, visions=visions)
        policy = replace(self.session.policy, max_new_tokens=case.max_new_tokens)
        prompt, pad_id = inputs.input_ids[0].tolist(), self.session.tokenizer.special.pad
        for k, [token] in enumerate(generate(self.session.pipeline, state, [prompt], policy, pad_id)):
            yield Step(token, Best.of(state.logits[0]))
            on_token(k)

    def _ends(self, case: Case, tokens: list[int]) -> bool:
        """Say whether decoding that gives ``tokens`` ends after the last of them."""
        eos_id = self.session.policy.eos_id
        return eos_id not in tokens[:-1] and (tokens[-1:] == [eos_id] or len(tokens) == case.max_new_tokens)

    def _ban(self, inputs: Inputs) -> NgramBan:
        return NgramBan(self.session.policy.no_repeat_ngram_size, inputs.input_ids[0].tolist())

    def _output(self, case: Case, tokens: list[int]) -> Output:
        text = clean_output(self.session.tokenizer.decode(tokens))
        spans = tuple(SpanSeen(span.label, span.boxes) for span in parse(text).spans)
        with tempfile.TemporaryDirectory() as folder:
            written = write_artifacts(text, case.page, folder)
            artefacts = {path.relative_to(folder).as_posix(): Artefact.of(path) for path in written.paths}
            mmd = Path(folder, MMD).read_bytes().decode()
        return Output(text, spans, mmd, artefacts)


def _seams(state: DecodeState[Any]) -> dict[str, Tensor]:
    seams = {name: tensor for vision in state.visions for name, tensor in vision.seams.items()}
    return {**seams, "prefill": state.logits[0]}
