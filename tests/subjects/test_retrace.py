"""A text that is read in another way than by steps: right if ties explain it, and wrong otherwise."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.tolerances import Tolerances, tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.pipeline import DecodeState
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.named import first_pages
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.follow import run_teacher_forced
from pytest_dsocr.subjects.retrace import Retraced, Retracer
from tests.subjects.seen import seen

LIMITS = tolerances("bfloat16")
TOKENS, TIE = 24, 20
"""Number of tokens, and the step at which eager and fused attention part on this page in bf16."""


@cache
def in_bfloat16(attention: str) -> Engine[Any]:
    return Engine.from_checkpoint("synthetic:tiny", dtype="bfloat16", attention=attention)


@pytest.fixture(scope="module")
def eager() -> Engine[Any]:
    return in_bfloat16("eager")


@pytest.fixture(scope="module")
def case() -> Case:
    [page] = first_pages(["dev-3"], 1)
    return make_case(page, "markdown", DEEPSEEK_OCR.quickest, TOKENS, family=DEEPSEEK_OCR)


@pytest.fixture(scope="module")
def expected(eager: Engine[Any], case: Case) -> ReferenceResult:
    return seen(eager, case)


class ReadsOtherwise(EngineSubject):
    """Reads with fused attention, and steps with the eager one."""

    text = ""
    """Text to return instead, if it is not empty."""

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        other = EngineSubject(in_bfloat16("sdpa"))
        return self.text or other.read(page, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)


class VariesByCall(ReadsOtherwise):
    """Takes steps with eager attention the first time, and with fused attention afterwards, as it reads."""

    prefills = 0
    is_sure = False
    """Whether the first steps have no ties."""

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> DecodeState[Any]:
        self.prefills += 1
        if self.prefills > 1:
            self.engine = in_bfloat16("sdpa")
        return super().prefill(inputs, vision_fusion)

    def step(self, state: Any, token: int) -> Tensor:
        logits = super().step(state, token)
        if self.is_sure and self.prefills == 1:
            logits[logits.argmax()] += 10
        return logits


def verdicts(
    subject: EngineSubject, case: Case, expected: ReferenceResult, limits: Tolerances | None
) -> dict[str, Verdict]:
    answer = run_teacher_forced(
        subject, case, expected, always_read=True, tokenizer=subject.engine.tokenizer, limits=limits
    )
    found = {one.what: one.verdict for one in compare_observations(answer, expected, LIMITS)}
    return {name: found[name] for name in ("tokens", "read", "text")}


def test_a_reading_may_leave_its_own_steps_by_a_tie(eager: Engine[Any], case: Case, expected: ReferenceResult) -> None:
    tied = {"tokens": Verdict.MATCH, "read": Verdict.MATCH, "text": Verdict.TIE_FLIP}
    assert verdicts(ReadsOtherwise(eager), case, expected, LIMITS) == tied
    assert verdicts(ReadsOtherwise(eager), case, expected, None)["read"] is Verdict.WRONG, "without limits of a tie"


def test_steps_may_choose_another_token_of_a_tie_the_next_time(
    eager: Engine[Any], case: Case, expected: ReferenceResult
) -> None:
    varied = {"tokens": Verdict.MATCH, "read": Verdict.MATCH, "text": Verdict.TIE_FLIP}
    assert verdicts(VariesByCall(eager), case, expected, LIMITS) == varied
    sure = VariesByCall(eager)
    sure.is_sure = True
    assert verdicts(sure, case, expected, LIMITS)["read"] is Verdict.WRONG


def test_a_reading_that_no_tie_explains_is_wrong(eager: Engine[Any], case: Case, expected: ReferenceResult) -> None:
    subject = ReadsOtherwise(eager)
    subject.text = expected.output.text.replace(">", "]", 1)
    assert verdicts(subject, case, expected, LIMITS)["read"] is Verdict.WRONG


@pytest.fixture(scope="module")
def retracer(eager: Engine[Any], case: Case) -> Retracer:
    asked = CheckedSubject(EngineSubject(eager))
    inputs = asked.inputs(case)
    return Retracer.of(asked, case, inputs, asked.vision(inputs)["vision_fusion"], eager.tokenizer, LIMITS)


@torch.no_grad()
def test_its_own_text_has_no_ties(retracer: Retracer, expected: ReferenceResult) -> None:
    assert retracer.along(expected.output.text) == Retraced(expected.token_ids, (), is_whole=True)


@torch.no_grad()
def test_the_step_of_a_tie_is_found(eager: Engine[Any], retracer: Retracer, case: Case) -> None:
    text = ReadsOtherwise(eager).read(
        case.page, prompt=case.prompt, preset=case.preset, max_new_tokens=case.max_new_tokens
    )
    found = retracer.along(text)
    assert found.is_whole
    assert found.ties[0].step == TIE
    assert found.ties[0].gap <= LIMITS.ties


@torch.no_grad()
@pytest.mark.parametrize("step", [3, 4, 9])
def test_another_token_ends_it_there(
    retracer: Retracer, eager: Engine[Any], expected: ReferenceResult, step: int
) -> None:
    tokens = [*expected.token_ids]
    tokens[step] += 8  # a token of the same kind, which does not tie
    found = retracer.along(eager.tokenizer.decode(tokens).strip())
    assert not found.is_whole
    assert found.tokens == expected.token_ids[:step]


@torch.no_grad()
def test_a_text_that_ends_early_or_goes_on_is_not_whole(retracer: Retracer, expected: ReferenceResult) -> None:
    text = expected.output.text
    assert not retracer.along(text[:-1]).is_whole
    assert not retracer.along(f"{text}x").is_whole
