"""Decode steps run again under mistakes, from the prompt's own state, which is right; and what is made of a text."""

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

from torch import Tensor

from pytest_dsocr.contract.markup import to_mmd
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.engine.pipeline import DecodeState
from pytest_dsocr.explain.catalogue import groups
from pytest_dsocr.explain.catalogue.output import writer_of
from pytest_dsocr.explain.catalogue.steps import RULE
from pytest_dsocr.explain.deadline import Deadline
from pytest_dsocr.explain.mistake import Changes, Mistake, PromptState, Target
from pytest_dsocr.explain.question import SOMEWHAT_NEARER, ActualStep, Question, SearchResult, search
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.models.spec import PREFILL, ModelSpec

WINDOW = 4
"""Steps that are compared from the first wrong one on."""


def explain_steps(clean: Clean, question: Question, deadline: Deadline) -> SearchResult:
    """Explain the logits of steps, or, where these are right, what was chosen of them."""
    stepper = _Stepper(clean, question)
    if question.what == "tokens":
        return _choices(clean, question, deadline)
    return search(groups(clean.engine.family)["steps"], stepper.measure, stepper.without, question, deadline)[0]


def explain_best(clean: Clean, question: Question, deadline: Deadline) -> SearchResult:
    """Explain the best first tokens, of a subject without logits."""

    def distance(logits: Tensor) -> float:
        return _apart(logits, tuple(question.best), tuple(question.best.values()))

    def measure(one: Mistake) -> float:
        with Changes() as changes:
            one.plant(Target.of_stage(clean.engine, changes, PREFILL, PromptState.of(clean.inputs)))
            return distance(clean.run("prefill", ""))

    clean.warm("prefill", "")
    known, without = groups(clean.engine.family)["prefill"], distance(clean.run("prefill", ""))
    return search(known, measure, without, question, deadline)[0]


class _Stepper:
    """The steps of a case, up to a few behind the first that is wrong."""

    def __init__(self, clean: Clean, question: Question) -> None:
        self.clean, self.question = clean, question
        self.state = clean.engine.pipeline.prefill_with(clean.inputs, clean.in_prompt)
        self.first, self.without = self._first_wrong()

    @property
    def last(self) -> int:
        """The step behind those that are compared."""
        return min(self.first + WINDOW, len(self.question.steps))

    def measure(self, one: Mistake) -> float:
        """Return the largest error of all steps up to the last that is compared."""
        prompt, worst = PromptState.of(self.clean.inputs, self.state.logits), 0.0
        with Changes() as changes:
            one.plant(Target.of_stage(self.clean.engine, changes, PREFILL, prompt))
            for k, logits in enumerate(self._logits(self.last)):
                worst = max(worst, self._distance(k, logits))
                if worst > self.without / SOMEWHAT_NEARER:
                    return math.inf
        return worst

    def _first_wrong(self) -> tuple[int, float]:
        """Return the first step that the engine has otherwise than the subject, and the error there and behind it."""
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
        pipeline = self.clean.engine.pipeline
        state: DecodeState[Any] = DecodeState(
            copy.deepcopy(self.state.cache), self.state.logits, self.state.last_embeds, []
        )
        for k in range(steps):
            if k == 0:
                yield self.state.logits[0]
            else:
                yield pipeline.decode_step(state, [self.question.steps[k - 1].reference])[0]

    def _distance(self, k: int, logits: Tensor) -> float:
        step: ActualStep = self.question.steps[k]
        return _apart(logits, step.ids, step.logits)


def _apart(logits: Tensor, ids: tuple[int, ...], found: tuple[float, ...]) -> float:
    """Return the largest difference from what was found, over the largest logit."""
    own = logits[list(ids)].tolist()
    largest = max((abs(one) for one in own), default=1.0) or 1.0
    apart = max((abs(a - b) for a, b in zip(own, found, strict=True)), default=math.inf) / largest
    return apart if math.isfinite(apart) else math.inf


def _choices(clean: Clean, question: Question, deadline: Deadline) -> SearchResult:
    """Explain choices whose logits are right: by the size of the n-gram rule."""
    prompt = clean.inputs.input_ids[0].tolist()

    def differing(policy: DecodePolicy) -> float:
        ban = policy.ban(prompt)
        wrong = 0
        for step in question.steps:
            banned = {*ban.banned()}
            ranked = sorted(zip(step.logits, step.ids, strict=True), key=lambda one: (-one[0], one[1]))
            chosen = next((token for _, token in ranked if token not in banned), None)
            wrong += chosen != step.token
            ban.push(step.reference)
        return wrong / len(question.steps)

    def measure(one: Mistake) -> float:
        with Changes() as changes:
            one.plant(Target(clean.engine, changes))
            return differing(clean.engine.policy)

    rules = [one for one in groups(clean.engine.family)["tokens"] if one.kind == RULE]
    without = differing(clean.engine.policy)
    answer, _ = search(rules, measure, without, question, deadline, near=0.0)
    return replace(answer, places=round(without * len(question.steps)))


def explain_written(family: ModelSpec, question: Question, deadline: Deadline) -> SearchResult:
    """Explain a ``result.mmd`` that does not follow from the subject's text."""
    text, form = question.page.text, family.form

    def measure(one: Mistake) -> float:
        return 0.0 if writer_of(one)(text, form) == question.mmd else math.inf

    without = float((right := to_mmd(text, form)) != question.mmd)
    answer, _ = search(groups(family)["written"], measure, without, question, deadline, near=0.0)
    changes = SequenceMatcher(None, right.splitlines(), (question.mmd or "").splitlines(), autojunk=False)
    return replace(answer, places=sum(kind != "equal" for kind, *_ in changes.get_opcodes()))
