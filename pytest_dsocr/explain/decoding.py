"""Explanations of decode steps, of choices of tokens, and of the file that is made of a text.

The steps run again under each mistake, from the state after the prompt, which is right.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from difflib import SequenceMatcher

from torch import Tensor

from pytest_dsocr.contract.markup import to_mmd
from pytest_dsocr.explain.along import copied
from pytest_dsocr.explain.catalogue import groups
from pytest_dsocr.explain.catalogue.output import writer_of
from pytest_dsocr.explain.catalogue.steps import RULE
from pytest_dsocr.explain.mistake import Changes, Mistake, PromptState, Target
from pytest_dsocr.explain.question import Question
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.explain.search import SOMEWHAT_NEARER, Search, SearchResult
from pytest_dsocr.models.spec import PREFILL, ModelSpec
from pytest_dsocr.records.reference_result import Best

WINDOW = 4
"""Number of steps to compare from the first wrong one on."""


def explain_steps(clean: Clean, search: Search) -> SearchResult:
    """Explain the logits of steps."""
    stepper = Stepper(clean, search.question)
    return search.among(groups(clean.engine.family)["steps"], stepper.measure, stepper.without)


def explain_best(clean: Clean, search: Search) -> SearchResult:
    """Explain the best first tokens of a subject that does not offer all logits."""
    assert search.question.best is not None
    best, prompt = search.question.best, PromptState.of(clean.inputs)

    def measure(one: Mistake) -> float:
        with _planted(one, clean, prompt):
            return _distance(clean.run(PREFILL, ""), best)

    clean.warm(PREFILL, "")
    return search.among(groups(clean.engine.family)[PREFILL], measure, _distance(clean.run(PREFILL, ""), best))


@contextmanager
def _planted(one: Mistake, clean: Clean, prompt: PromptState) -> Iterator[None]:
    with Changes() as changes:
        one.plant(Target.of_stage(clean.engine, changes, PREFILL, prompt))
        yield


class Stepper:
    """Steps of a case, up to a few after the first wrong one."""

    def __init__(self, clean: Clean, question: Question) -> None:
        self.clean, self.question = clean, question
        self.state = clean.engine.pipeline.prefill_with(clean.inputs, clean.in_prompt)
        self.first, self.without = self._first_wrong()

    def measure(self, one: Mistake) -> float:
        """Return the largest error of the compared steps; infinity once it is too large to explain them."""
        worst, last = 0.0, min(self.first + WINDOW, len(self.question.steps))
        with _planted(one, self.clean, PromptState.of(self.clean.inputs, self.state.logits)):
            for apart in self._distances(last):
                worst = max(worst, apart)
                if worst > self.without / SOMEWHAT_NEARER:
                    return math.inf
        return worst

    def _first_wrong(self) -> tuple[int, float]:
        """Return the index of the first wrong step, and the largest error up to the last compared step."""
        first, worst = len(self.question.steps), 0.0
        for k, apart in enumerate(self._distances(len(self.question.steps))):
            if apart > self.question.near and first > k:
                first = k
            worst = max(worst, apart)
            if k >= first + WINDOW:
                break
        return first, worst

    def _distances(self, count: int) -> Iterator[float]:
        """Yield the distance of the first steps' logits, along the reference's tokens."""
        pipeline, state, fed = self.clean.engine.pipeline, copied(self.state), list[int]()
        for step, expected in self.question.steps[:count]:
            logits = pipeline.decode_step(state, fed) if fed else state.logits
            yield _distance(logits[0], step.at_hand(expected))
            fed = [expected.token]


def _distance(logits: Tensor, actual: Best) -> float:
    """Return the largest difference from the subject's logits, relative to the largest logit."""
    own = logits[list(actual.ids)].tolist()
    largest = max((abs(one) for one in own), default=1.0) or 1.0
    apart = max((abs(a - b) for a, b in zip(own, actual.logits, strict=True)), default=math.inf) / largest
    return apart if math.isfinite(apart) else math.inf


def explain_choices(clean: Clean, search: Search) -> SearchResult:
    """Explain wrong choices from right logits by another n-gram rule."""
    prompt, engine, steps = clean.inputs.input_ids[0].tolist(), clean.engine, search.question.steps

    def wrong_choices() -> int:
        ban, wrong = engine.policy.ban(prompt), 0
        for step, expected in steps:
            banned, known = {*ban.banned()}, step.at_hand(expected)
            ranked = sorted(zip(known.logits, known.ids, strict=True), key=lambda one: (-one[0], one[1]))
            wrong += next((token for _, token in ranked if token not in banned), None) != step.token
            ban.push(expected.token)
        return wrong

    def measure(one: Mistake) -> float:
        with Changes() as changes:
            one.plant(Target(engine, changes))
            return wrong_choices() / len(steps)

    rules = [one for one in groups(engine.family)["tokens"] if one.kind == RULE]
    places = wrong_choices()
    return replace(search.among(rules, measure, places / len(steps), near=0.0), places=places)


def explain_written(family: ModelSpec, search: Search) -> SearchResult:
    """Explain a result file that does not follow from the subject's text."""
    text, form, actual = search.question.page.text, family.form, search.question.mmd or ""

    def measure(one: Mistake) -> float:
        return 0.0 if writer_of(one)(text, form) == actual else math.inf

    right = to_mmd(text, form)
    answer = search.among(groups(family)["written"], measure, float(right != actual), near=0.0)
    changes = SequenceMatcher(None, right.splitlines(), actual.splitlines(), autojunk=False)
    return replace(answer, places=sum(kind != "equal" for kind, *_ in changes.get_opcodes()))
