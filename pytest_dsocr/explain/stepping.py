"""Decode steps run again under what-ifs, from the prompt's own state, which is right."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.engine.pipeline import DecodeState
from pytest_dsocr.explain.changes import Changes
from pytest_dsocr.explain.family import Bench, Family, WhatIf
from pytest_dsocr.explain.of_decoder import PREFILL
from pytest_dsocr.explain.of_steps import STEPS
from pytest_dsocr.explain.question import Answer, HeardStep, Question
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.explain.search import SOMEWHAT_NEARER, Deadline, search
from pytest_dsocr.families import DEFAULT

WINDOW = 4
"""Steps that are compared from the first wrong one on."""
SIZES = [0, *range(1, 65)]


def explain_steps(clean: Clean, question: Question, deadline: Deadline) -> Answer:
    """Explain the logits of steps, or, where these are right, what was chosen of them."""
    stepper = _Stepper(clean, question)
    if question.what == "tokens":
        return _choices(clean, question, deadline)
    answer, _ = search(STEPS, stepper.measure, stepper.without, question.near, deadline)
    return answer


def explain_best(clean: Clean, question: Question, deadline: Deadline) -> Answer:
    """Explain the best first tokens, of a subject that gives no logits."""

    def distance(logits: Tensor) -> float:
        return _apart(logits, tuple(question.best), tuple(question.best.values()))

    def measure(one: WhatIf) -> float:
        with Changes() as changes:
            blocks = clean.model.model.decoder_layers()
            notes = {"all_blocks": blocks, "first": 0, "stage": "prefill", "view": ""}
            one.plant(Bench(clean.session, changes, blocks, clean.image, notes))
            return distance(clean.run("prefill", ""))

    clean.warm("prefill", "")
    return search(PREFILL, measure, distance(clean.run("prefill", "")), question.near, deadline)[0]


class _Stepper:
    """The steps of a case, up to a few behind the first that is wrong."""

    def __init__(self, clean: Clean, question: Question) -> None:
        self.clean, self.question = clean, question
        features = clean.fused if clean.inputs.has_vision else None
        self.state = clean.session.pipeline.prefill_with(clean.inputs, features)
        self.first, self.without = self._first_wrong()

    @property
    def last(self) -> int:
        """The step behind those that are compared."""
        return min(self.first + WINDOW, len(self.question.steps))

    def measure(self, one: WhatIf) -> float:
        """Give the largest error of the steps that are compared."""
        session, inputs = self.clean.session, self.clean.inputs
        layers = self.clean.model.model.decoder_layers()
        notes = {
            "prompt": inputs.prompt_tokens,
            "last": int(inputs.input_ids[0, -1]),
            "logits": self.state.logits,
            "all_blocks": layers,
            "first": 0,
            "stage": "prefill",
        }
        worst = 0.0
        with Changes() as changes:
            one.plant(Bench(session, changes, layers, self.clean.image, notes))
            for k, logits in enumerate(self._logits(self.last)):
                if k >= self.first:
                    worst = max(worst, self._distance(k, logits))
                if worst > self.without / SOMEWHAT_NEARER:
                    return math.inf
        return worst

    def _first_wrong(self) -> tuple[int, float]:
        """Give the first step that the session has otherwise than the subject, and the error there and behind it."""
        first, worst = len(self.question.steps), 0.0
        for k, logits in enumerate(self._logits(len(self.question.steps))):
            distance = self._distance(k, logits)
            if distance > self.question.near and first > k:
                first = k
            worst = max(worst, distance)
            if k >= first + WINDOW:
                break
        return first, worst

    def _logits(self, steps: int) -> Iterator[Tensor]:
        """Yield the logits ``[V]`` that each step's token is chosen from, along the reference's tokens."""
        pipeline = self.clean.session.pipeline
        state: DecodeState[Any] = DecodeState(
            copy.deepcopy(self.state.cache), self.state.logits, self.state.last_embeds, []
        )
        for k in range(steps):
            if k == 0:
                yield self.state.logits[0]
            else:
                yield pipeline.decode_step(state, [self.question.steps[k - 1].reference])[0]

    def _distance(self, k: int, logits: Tensor) -> float:
        step: HeardStep = self.question.steps[k]
        return _apart(logits, step.ids, step.logits)


def _apart(logits: Tensor, ids: tuple[int, ...], heard: tuple[float, ...]) -> float:
    """Give the largest difference from what was heard, over the largest logit."""
    own = logits[list(ids)].tolist()
    largest = max((abs(one) for one in own), default=1.0) or 1.0
    apart = max((abs(a - b) for a, b in zip(own, heard, strict=True)), default=math.inf) / largest
    return apart if math.isfinite(apart) else math.inf


def _choices(clean: Clean, question: Question, deadline: Deadline) -> Answer:
    """Explain choices whose logits are right: by the size of the n-gram rule."""
    family = Family("tokens")
    for size in SIZES:
        words = (
            "no n-gram rule"
            if size == 0
            else f"an n-gram rule of {size} tokens in place of {DEFAULT.decoding.no_repeat_ngram_size}"
        )
        family.add(f"size-{size}", words, lambda on: None)
    prompt = clean.inputs.input_ids[0].tolist()
    others = {one.id: size for one, size in zip(family, SIZES, strict=True)}

    def differing(size: int) -> float:
        ban = NgramBan(size, prompt)
        wrong = 0
        for step in question.steps:
            banned = {*ban.banned()}
            ranked = sorted(zip(step.logits, step.ids, strict=True), key=lambda one: (-one[0], one[1]))
            chosen = next((token for _, token in ranked if token not in banned), None)
            wrong += chosen != step.token
            ban.push(step.reference)
        return wrong / len(question.steps)

    return search(
        family, lambda one: differing(others[one.id]), differing(DEFAULT.decoding.no_repeat_ngram_size), 0.0, deadline
    )[0]
