"""Decode steps and readings run again under mistakes, from the prompt's own state, which is right."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.mmd import clean_output, to_mmd
from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.engine import pipeline
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.pipeline import DecodeState
from pytest_dsocr.explain.catalogue import groups, ports
from pytest_dsocr.explain.catalogue.output import TEXTS, WRITTEN
from pytest_dsocr.explain.catalogue.reading import ReadingRule, reading
from pytest_dsocr.explain.mistake import Changes, Mistake, Target
from pytest_dsocr.explain.planted import plant
from pytest_dsocr.explain.question import ActualStep, Question, SearchResult
from pytest_dsocr.explain.recompute import Clean, inputs_under
from pytest_dsocr.explain.search import SOMEWHAT_NEARER, search
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.level import Level

SIZE = "tokens.size-"
WINDOW = 4
"""Steps that are compared from the first wrong one on."""
LOOKED_AT = 4
"""After this many tokens the text so far is checked."""
UNSURE = 8
"""Characters at the end of a text that a further token may change."""
INPUTS = ("pixels", "prompt")
SOON = ("text", "read", "prompt")
LATE = ("steps", "vision_fusion", "projector", "prefill", "clip", "pixels", "sam")
"""The groups of mistakes that may give another text, what is computed sooner in front of what is later."""


def explain_steps(clean: Clean, question: Question, deadline_s: float) -> SearchResult:
    """Explain the logits of steps, or, where these are right, what was chosen of them."""
    stepper = _Stepper(clean, question)
    if question.what == "tokens":
        return _choices(clean, question, deadline_s)
    return search(groups()["steps"], stepper.measure, stepper.without, question, deadline_s)[0]


def explain_best(clean: Clean, question: Question, deadline_s: float) -> SearchResult:
    """Explain the best first tokens, of a subject without logits."""

    def distance(logits: Tensor) -> float:
        return _apart(logits, tuple(question.best), tuple(question.best.values()))

    def measure(one: Mistake) -> float:
        with Changes() as changes:
            one.plant(Target.of_stage(clean.session, changes, "prefill", clean.image))
            return distance(clean.run("prefill", ""))

    clean.warm("prefill", "")
    return search(groups()["prefill"], measure, distance(clean.run("prefill", "")), question, deadline_s)[0]


class _Stepper:
    """The steps of a case, up to a few behind the first that is wrong."""

    def __init__(self, clean: Clean, question: Question) -> None:
        self.clean, self.question = clean, question
        self.state = clean.session.pipeline.prefill_with(clean.inputs, clean.in_prompt)
        self.first, self.without = self._first_wrong()

    @property
    def last(self) -> int:
        """The step behind those that are compared."""
        return min(self.first + WINDOW, len(self.question.steps))

    def measure(self, one: Mistake) -> float:
        """Return the largest error of the steps that are compared."""
        session, inputs = self.clean.session, self.clean.inputs
        notes = {"prompt": inputs.prompt_tokens, "last": int(inputs.input_ids[0, -1]), "logits": self.state.logits}
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
        question,
        deadline_s,
        near=0.0,
    )[0]


def explain_reading(session: Engine[Any], case: Case, question: Question, deadline_s: float) -> SearchResult:
    """Explain a text that is not the reference's: several mistakes may give the same one, so that none ends it."""
    texts = _Texts(session, case, question)
    without = 0.0 if texts.right == question.text else 1.0
    found = of_text(question.level)
    return search(found, texts.measure, without, question, deadline_s, near=0.0, goes_on=lambda one: True)[0]


def of_text(level: int) -> Sequence[Mistake]:
    """Return what may give another text: by the subject's level the inputs and the stages are known to be right.

    In front is what is computed soon, then what was seen in real ports, then what was thought of as such.
    """
    kinds = (*SOON, *LATE) if level < Level.STAGES else SOON[:2]
    found = [one for kind in kinds if not (level and kind in INPUTS) for one in groups()[kind]]
    found = [one for one in found if not one.id.startswith("text.") or one.id.partition(".")[2] in TEXTS]
    seen = {one.mistake: 2 - bool(one.topic) for one in sorted(ports().values(), key=lambda one: bool(one.topic))}
    return sorted(found, key=lambda one: seen.get(one.id, 3) if one.id.startswith(LATE) else 0)


def _scatter(embeds: Tensor, mask: Tensor, features: Tensor, _: int) -> Tensor:
    """Put features into the prompt as the vendor's code does, which counts none that are left over."""
    return embeds.masked_scatter(mask[..., None], features.to(embeds.dtype))


def explain_written(question: Question, deadline_s: float) -> SearchResult:
    """Explain a ``result.mmd`` that does not follow from the subject's text."""

    def measure(one: Mistake) -> float:
        return 0.0 if WRITTEN[one.id.removeprefix("written.")][1](question.text) == question.mmd else math.inf

    without = float(to_mmd(question.text) != question.mmd)
    return search(groups()["written"], measure, without, question, deadline_s, near=0.0)[0]


class _Texts:
    """The text of a case, as the session reads it under mistakes."""

    def __init__(self, session: Engine[Any], case: Case, question: Question) -> None:
        self.session, self.case, self.question = session, case, question
        self.right = clean_output(session.tokenizer.decode(question.reference_tokens))
        self.clean, self.page = Clean(session, inputs_under(session, case)), load_image(case.page)
        self.state = session.pipeline.prefill_with(self.clean.inputs, self.clean.in_prompt)

    def measure(self, one: Mistake) -> float:
        """Return 0 where the text is the subject's."""
        group, _, name = one.id.partition(".")
        if group == "text":
            said = TEXTS[name][1](self.session.tokenizer, self.question.reference_tokens) == self.question.text
        elif group == "read":
            said = self._reads(self.clean.inputs, self._prefilled(reading(name)), reading(name))
        else:
            with Changes() as changes:
                changes.set(pipeline, "scatter", _scatter)
                said = self._reads_under(one, group, changes)
        return 0.0 if said else math.inf

    def _reads_under(self, one: Mistake, group: str, changes: Changes) -> bool:
        """Return whether the session reads the subject's text with a mistake; features are computed where it is."""
        right, model = self.clean.inputs, self.session.pipeline
        if group == "prompt" and not one.id.startswith("prompt.preset-"):  # these change pixels as well
            brief = inputs_under(self.session, self.case, one, page=self.page)
            right = replace(right, input_ids=brief.input_ids, images_seq_mask=brief.images_seq_mask)
            state = model.prefill_with(right, self.clean.fused if right.has_vision else None)
        elif group in INPUTS:
            right = inputs_under(self.session, self.case, one)
            if all(map(torch.equal, right.tensors.values(), self.clean.inputs.tensors.values())):
                return False
            state = model.prefill(right)
        else:
            plant(one, self.session, changes)
            state = model.prefill_with(right, self.clean.fused_under(group) if right.has_vision else None)
        return self._reads(right, state, ReadingRule())

    def _reads(self, inputs: Inputs, state: DecodeState[Any], by: ReadingRule) -> bool:
        """Return whether the session reads the subject's text; ends where it goes another way."""
        tokenizer, eos, most = self.session.tokenizer, self.session.policy.eos_id, self.case.max_new_tokens
        prompt, said = inputs.input_ids[0].tolist(), list[int]()
        for token in by.tokens(self.session.pipeline, state, prompt, tokenizer, eos, most):
            said.append(token)
            if len(said) % LOOKED_AT == 0 and not self._may_be(said):
                return False
        return clean_output(tokenizer.decode(said)) == self.question.text

    def _prefilled(self, by: ReadingRule) -> DecodeState[Any]:
        """Return the state behind the prompt, which is read once; decoding moves a copy on."""
        if by.blind:
            return self.session.pipeline.prefill_with(self.clean.inputs, None)
        return DecodeState(copy.deepcopy(self.state.cache), self.state.logits, self.state.last_embeds, [])

    def _may_be(self, said: Sequence[int]) -> bool:
        text = clean_output(self.session.tokenizer.decode(said))  # without the EOS, longer than what may change
        return self.question.text.startswith(text[:-UNSURE])
