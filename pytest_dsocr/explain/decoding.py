"""Decode steps and readings run again under mistakes, from the prompt's own state, which is right."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from torch import Tensor

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.mmd import clean_output, to_mmd
from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.pipeline import DecodeState
from pytest_dsocr.explain.catalogue import groups
from pytest_dsocr.explain.catalogue.output import TEXTS, WRITTEN
from pytest_dsocr.explain.catalogue.reading import ReadingRule, reading
from pytest_dsocr.explain.mistake import Changes, Mistake, Target
from pytest_dsocr.explain.question import ActualStep, Question, SearchResult
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.explain.search import SOMEWHAT_NEARER, search
from pytest_dsocr.observation.case import Case

SIZE = "tokens.size-"
WINDOW = 4
"""Steps that are compared from the first wrong one on."""
LOOKED_AT = 8
"""After this many tokens the text so far is checked."""
UNSURE = 8
"""Characters at the end of a text that a further token may change."""


def explain_steps(clean: Clean, question: Question, deadline_s: float) -> SearchResult:
    """Explain the logits of steps, or, where these are right, what was chosen of them."""
    stepper = _Stepper(clean, question)
    if question.what == "tokens":
        return _choices(clean, question, deadline_s)
    answer, _ = search(groups()["steps"], stepper.measure, stepper.without, question.near, deadline_s)
    return answer


def explain_best(clean: Clean, question: Question, deadline_s: float) -> SearchResult:
    """Explain the best first tokens, of a subject without logits."""

    def distance(logits: Tensor) -> float:
        return _apart(logits, tuple(question.best), tuple(question.best.values()))

    def measure(one: Mistake) -> float:
        with Changes() as changes:
            one.plant(Target.of_stage(clean.session, changes, "prefill", clean.image))
            return distance(clean.run("prefill", ""))

    clean.warm("prefill", "")
    return search(groups()["prefill"], measure, distance(clean.run("prefill", "")), question.near, deadline_s)[0]


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

    def measure(self, one: Mistake) -> float:
        """Return the largest error of the steps that are compared."""
        session, inputs = self.clean.session, self.clean.inputs
        notes = {
            "prompt": inputs.prompt_tokens,
            "last": int(inputs.input_ids[0, -1]),
            "logits": self.state.logits,
        }
        worst = 0.0
        with Changes() as changes:
            one.plant(Target.of_stage(session, changes, "prefill", self.clean.image, **notes))
            for k, logits in enumerate(self._logits(self.last)):
                if k >= self.first:
                    worst = max(worst, self._distance(k, logits))
                if worst > self.without / SOMEWHAT_NEARER:
                    return math.inf
        return worst

    def _first_wrong(self) -> tuple[int, float]:
        """Return the first step that the session has otherwise than the subject, and the error there and behind it."""
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
        step: ActualStep = self.question.steps[k]
        return _apart(logits, step.ids, step.logits)


def _apart(logits: Tensor, ids: tuple[int, ...], found: tuple[float, ...]) -> float:
    """Return the largest difference from what was found, over the largest logit."""
    own = logits[list(ids)].tolist()
    largest = max((abs(one) for one in own), default=1.0) or 1.0
    apart = max((abs(a - b) for a, b in zip(own, found, strict=True)), default=math.inf) / largest
    return apart if math.isfinite(apart) else math.inf


def _choices(clean: Clean, question: Question, deadline_s: float) -> SearchResult:
    """Explain choices whose logits are right: by the size of the n-gram rule."""
    prompt = clean.inputs.input_ids[0].tolist()

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

    sizes = [one for one in groups()["tokens"] if one.id.startswith(SIZE)]
    return search(
        sizes,
        lambda one: differing(int(one.id.removeprefix(SIZE))),
        differing(clean.session.family.decoding.no_repeat_ngram_size),
        0.0,
        deadline_s,
    )[0]


def explain_reading(session: Engine[Any], case: Case, question: Question, deadline_s: float) -> SearchResult:
    """Explain a text that is not the reference's."""
    texts = _Texts(session, case, question)
    candidates = [*(one for one in groups()["text"] if texts.name(one) in TEXTS), *groups()["read"]]
    if question.level == 0:
        candidates += [*texts.other_cases(), *groups()["pixels"], *groups()["prompt"]]
    return search(candidates, texts.measure, 0.0 if texts.right == question.text else 1.0, 0.0, deadline_s)[0]


def explain_written(question: Question, deadline_s: float) -> SearchResult:
    """Explain a ``result.mmd`` that does not follow from the subject's text."""

    def measure(one: Mistake) -> float:
        return 0.0 if WRITTEN[one.id.removeprefix("written.")][1](question.text) == question.mmd else math.inf

    return search(groups()["written"], measure, float(to_mmd(question.text) != question.mmd), 0.0, deadline_s)[0]


class _Texts:
    """The text of a case, as the session reads it under mistakes."""

    def __init__(self, session: Engine[Any], case: Case, question: Question) -> None:
        self.session, self.case, self.question = session, case, question
        self.right = clean_output(session.tokenizer.decode(question.reference_tokens))
        self._others: dict[str, tuple[str, str]] = {}
        self._read: DecodeState[Any] | None = None

    @staticmethod
    def name(one: Mistake) -> str:
        """Return the end of a mistake's id, by which its row is found."""
        return one.id.partition(".")[2]

    def other_cases(self) -> Iterator[Mistake]:
        """Yield other presets, and other prompts."""
        for name in self.session.family.presets:
            if name != self.case.preset.name:
                yield self._other(f"the preset {name}", name, self.case.prompt)
        for name, prompt in self.session.family.prompts.items():
            if prompt != self.case.prompt:
                yield self._other(f"the prompt {name!r}", self.case.preset.name, prompt)

    def measure(self, one: Mistake) -> float:
        """Return 0 where the text is the subject's."""
        if one.id.startswith("text."):
            text = TEXTS[self.name(one)][1](self.session.tokenizer, self.question.reference_tokens)
            return 0.0 if text == self.question.text else math.inf
        if one.id.startswith("read."):
            return 0.0 if self._reads(self._inputs, reading(self.name(one))) else math.inf
        with Changes() as changes:
            one.plant(Target(self.session, changes))
            preset, prompt = self._others.get(one.id, (self.case.preset, self.case.prompt))
            inputs = self.session.prepare(self.case.page, prompt=prompt, preset=preset)
            return 0.0 if self._reads(inputs, ReadingRule()) else math.inf

    def _other(self, words: str, preset: str, prompt: str) -> Mistake:
        self._others[f"case.{words}"] = (preset, prompt)
        return Mistake(f"case.{words}", words, "block", lambda on: None)

    def _reads(self, inputs: Inputs, by: ReadingRule) -> bool:
        """Return whether the session reads the subject's text; ends where it goes another way."""
        tokenizer, eos, most = self.session.tokenizer, self.session.policy.eos_id, self.case.max_new_tokens
        prompt, said = inputs.input_ids[0].tolist(), list[int]()
        for token in by.tokens(self.session.pipeline, self._prefilled(inputs, by), prompt, tokenizer, eos, most):
            said.append(token)
            if len(said) % LOOKED_AT == 0 and not self._may_be(said):
                return False
        return clean_output(tokenizer.decode(said)) == self.question.text

    @cached_property
    def _inputs(self) -> Inputs:
        return self.session.prepare(self.case.page, prompt=self.case.prompt, preset=self.case.preset)

    def _prefilled(self, inputs: Inputs, by: ReadingRule) -> DecodeState[Any]:
        """Read the prompt; that of the case itself is read once."""
        if by.blind:
            return self.session.pipeline.prefill_with(inputs, None)
        if inputs is not self._inputs:
            return self.session.prefill(inputs)
        self._read = self._read or self.session.prefill(inputs)
        return DecodeState(copy.deepcopy(self._read.cache), self._read.logits, self._read.last_embeds, [])

    def _may_be(self, said: Sequence[int]) -> bool:
        text = self.session.tokenizer.decode(said).strip()
        return self.question.text.startswith(text[:-UNSURE])
