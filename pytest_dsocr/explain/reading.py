"""A text explained: by how tokens become text, by how they are chosen, or by what is written of it."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.mmd import clean_output, to_mmd
from pytest_dsocr.engine.pipeline import DecodeState
from pytest_dsocr.engine.session import Session
from pytest_dsocr.explain.changes import Changes
from pytest_dsocr.explain.family import Bench, Family, WhatIf
from pytest_dsocr.explain.of_output import READINGS, TEXTS, WRITTEN, Reading, reading
from pytest_dsocr.explain.of_pixels import PIXELS
from pytest_dsocr.explain.of_prompt import PROMPT
from pytest_dsocr.explain.question import Answer, Question
from pytest_dsocr.explain.search import Deadline, search
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.observation.case import Case

LOOKED_AT = 8
"""Every so many tokens the text so far is looked at."""
UNSURE = 8
"""Characters at the end of a text that a further token may change."""


def explain_reading(session: Session[Any], case: Case, question: Question, deadline: Deadline) -> Answer:
    """Explain a text that is not the reference's."""
    told = _Told(session, case, question)
    family = Family("text")
    for key, (words, _) in TEXTS.items():
        family.add(key, words, lambda on: None)
    for key, (words, _how) in READINGS.items():
        family.add(f"read-{key}", words, lambda on: None)
    if question.level == 0:
        family.extend((*told.other_cases(), *PIXELS, *PROMPT))
    return search(family, told.measure, 0.0 if told.right == question.text else 1.0, 0.0, deadline)[0]


def explain_written(question: Question, deadline: Deadline) -> Answer:
    """Explain a ``result.mmd`` that is not what the subject's text gives."""
    family = Family("written")
    for key, (words, _) in WRITTEN.items():
        family.add(key, words, lambda on: None)
    made = {f"written.{key}": write for key, (_, write) in WRITTEN.items()}

    def measure(one: WhatIf) -> float:
        return 0.0 if made[one.id](question.text) == question.mmd else math.inf

    return search(family, measure, float(to_mmd(question.text) != question.mmd), 0.0, deadline)[0]


class _Told:
    """The text of a case, as the session gives it under what-ifs."""

    def __init__(self, session: Session[Any], case: Case, question: Question) -> None:
        self.session, self.case, self.question = session, case, question
        self.right = clean_output(session.tokenizer.decode(question.reference_tokens))
        self._others: dict[str, tuple[str, str]] = {}
        self._read: DecodeState[Any] | None = None

    def other_cases(self) -> Iterator[WhatIf]:
        """Yield other presets, and other prompts."""
        for name in DEFAULT.presets:
            if name != self.case.preset.name:
                yield self._other(f"the preset {name}", name, self.case.prompt)
        for name, prompt in DEFAULT.prompts.items():
            if prompt != self.case.prompt:
                yield self._other(f"the prompt {name!r}", self.case.preset.name, prompt)

    def measure(self, one: WhatIf) -> float:
        """Give 0 where the text is the subject's."""
        name = one.id.removeprefix("text.")
        if one.id.startswith("text.") and name in TEXTS:
            told = TEXTS[name][1](self.session.tokenizer, self.question.reference_tokens)
            return 0.0 if told == self.question.text else math.inf
        if name.startswith("read-"):
            return 0.0 if self._reads(self._inputs, reading(READINGS[name.removeprefix("read-")][1])) else math.inf
        with Changes() as changes:
            one.plant(Bench(self.session, changes))
            preset, prompt = self._others.get(one.id, (self.case.preset, self.case.prompt))
            inputs = self.session.prepare(self.case.page, prompt=prompt, preset=preset)
            return 0.0 if self._reads(inputs, Reading()) else math.inf

    def _other(self, words: str, preset: str, prompt: str) -> WhatIf:
        self._others[f"case.{words}"] = (preset, prompt)
        return WhatIf(f"case.{words}", words, "block", lambda on: None)

    def _reads(self, inputs: Inputs, by: Reading) -> bool:
        """Say whether the session reads the subject's text; ends where it goes another way."""
        said: list[int] = []
        for token in self._tokens(inputs, by):
            said.append(token)
            if len(said) % LOOKED_AT == 0 and not self._may_be(said):
                return False
        return clean_output(self.session.tokenizer.decode(said)) == self.question.text

    def _tokens(self, inputs: Inputs, by: Reading) -> Iterator[int]:
        pipeline, eos = self.session.pipeline, self.session.policy.eos_id
        state = self._prefilled(inputs, by)
        if by.redecoded:
            pipeline.redecode_last(state)
        prompt, said = inputs.input_ids[0].tolist(), list[int]()
        for _ in range(min(by.most or self.case.max_new_tokens, self.case.max_new_tokens)):
            said.append(by.choose(state.logits[0], prompt, said, eos))
            yield said[-1]
            if said[-1] == eos or (by.stop and by.stop(self.session.tokenizer.decode(said).strip())):
                return
            pipeline.decode_step(state, said[-1:])

    @cached_property
    def _inputs(self) -> Inputs:
        return self.session.prepare(self.case.page, prompt=self.case.prompt, preset=self.case.preset)

    def _prefilled(self, inputs: Inputs, by: Reading) -> DecodeState[Any]:
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
