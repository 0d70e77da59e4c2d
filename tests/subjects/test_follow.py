"""A case put to a subject: along a reference's tokens, freely where they part, and as far as its level goes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Reason, Verdict
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.deepseek_ocr.sizes import sizes_of
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.reference_result import Best, Output, ReferenceResult, Step
from pytest_dsocr.records.subject_result import ForcedStep
from pytest_dsocr.subjects.calls import watching
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.follow import run_teacher_forced
from tests.compare.made import every_bit, observation
from tests.crops import cropped_case
from tests.subjects.seen import seen
from tests.subjects.spoilt import only

SEAMS = (*DEEPSEEK_OCR.vision_seams, "prefill")

TOKENS = 24


@pytest.fixture(scope="module")
def case(pages: Path) -> Case:
    return make_case(pages / "tiny.png", "free", "tiny", TOKENS, family=DEEPSEEK_OCR)


@pytest.fixture(scope="module")
def own(tiny: Engine[Any], case: Case) -> ReferenceResult:
    """Return the engine's own result."""
    return seen(tiny, case)


@pytest.fixture(scope="module")
def another(case: Case) -> ReferenceResult:
    """Return the result of other weights for the same page."""
    return seen(Engine.from_checkpoint("synthetic:tiny@3"), case)


def with_rule(engine: Engine[Any], **rules: int) -> EngineSubject:
    return EngineSubject(Engine(engine.model, engine.tokenizer, policy=replace(engine.policy, **rules)))


def counted(engine: Engine[Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Mock]:
    """Count how often the model is asked to see and to decode."""
    model = model_of(engine)
    mocks = {name: Mock(wraps=getattr(model, name)) for name in ("sam", "decode")}
    for name, mock in mocks.items():
        monkeypatch.setattr(model, name, mock)
    return mocks


def choices(forced: Sequence[ForcedStep] | None) -> tuple[int, ...]:
    assert forced is not None
    return tuple(step.token for step in forced)


def test_along_its_own_tokens_it_says_the_same_and_decodes_once(
    tiny: Engine[Any], case: Case, own: ReferenceResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, reported = counted(tiny, monkeypatch), list[int]()
    answer = run_teacher_forced(EngineSubject(tiny), case, own, reported.append)
    assert choices(answer.forced) == own.token_ids
    assert (calls["sam"].call_count, calls["decode"].call_count) == (1, TOKENS)
    assert reported == [*range(TOKENS)]
    assert (answer.case_id, answer.text, answer.spans) == (own.case_id, own.output.text, own.output.spans)
    assert answer.spans, "the page has no boxes, so this shows little"
    assert not answer.reread
    found = list(compare_observations(answer, own, tolerances("float32")))
    assert {comparison.verdict for comparison in found} == {Verdict.MATCH}


def test_along_anothers_tokens_it_reads_freely_as_well(
    tiny: Engine[Any], case: Case, own: ReferenceResult, another: ReferenceResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert another.token_ids != own.token_ids
    calls, reported = counted(tiny, monkeypatch), list[int]()
    answer = run_teacher_forced(EngineSubject(tiny), case, replace(another, steps=another.steps[:7]), reported.append)
    assert (answer.text, answer.mmd) == (own.output.text, own.output.mmd)
    assert len(choices(answer.forced)) == 7
    assert (calls["sam"].call_count, calls["decode"].call_count) == (2, 7 + TOKENS)
    assert reported == [*range(7)]
    assert not answer.reread
    stages = only(EngineSubject(tiny), Level.STAGES)  # without ``text_of`` it always reads
    for reference in (own, another):
        found = run_teacher_forced(stages, case, reference)
        assert (found.text, found.reread) == (own.output.text, reference is own)


def test_it_stops_at_its_eos_where_a_reference_of_the_same_tokens_did_not(
    tiny: Engine[Any], case: Case, own: ReferenceResult
) -> None:
    at = next(k for k in range(3, TOKENS) if own.token_ids[k] not in own.token_ids[:k])
    answer = run_teacher_forced(with_rule(tiny, eos_id=own.token_ids[at]), case, own)
    assert choices(answer.forced) == own.token_ids
    until = Output.of(tiny.tokenizer.decode(own.token_ids[: at + 1]), case.page, DEEPSEEK_OCR.form).text
    assert answer.text == until != own.output.text
    assert (answer.ends, answer.reread) == (False, False)


def test_what_it_reads_is_compared_with_the_text_of_its_tokens_where_both_are_asked_for(
    tiny: Engine[Any], case: Case, own: ReferenceResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = EngineSubject(tiny)
    monkeypatch.setattr(subject, "text_of", lambda ids: "of tokens")
    answer = run_teacher_forced(subject, case, own, always_read=True)
    assert (answer.text, answer.text_of_tokens, answer.reread) == (own.output.text, "of tokens", True)
    assert run_teacher_forced(subject, case, own).text_of_tokens is None


@pytest.mark.parametrize("keep_values", [True, False])
def test_seams_and_inputs_are_the_engines_and_whole_where_the_references_are(
    keep_values: bool, tiny: Engine[Any], pages: Path
) -> None:
    case = cropped_case(pages, "markdown", 1)
    expected = seen(tiny, case, keep_values=keep_values)
    answer = run_teacher_forced(EngineSubject(tiny), case, expected)
    assert answer.inputs is not None
    assert every_bit(answer.inputs) == every_bit(expected.inputs)
    assert (answer.inputs.values is not None) is keep_values
    assert [name for name in answer.seams if "/" not in name] == [*SEAMS] == [*expected.seams]
    for name, seam in expected.seams.items():
        assert every_bit(answer.seams[name]) == every_bit(seam)
    assert answer.prefill_best == expected.prefill_best
    assert answer.promised == {*SEAMS}
    names, depth = [*answer.seams], sizes_of(model_of(tiny).arch).sam.layers
    sam = [[*(f"sam.{view}/{k}" for k in range(depth)), f"sam.{view}"] for view in ("crops", "page")]
    assert names[: 2 * depth + 2] == [*sam[0], *sam[1]]
    assert names[-2].startswith("prefill/")
    shut = make_case(
        pages / "halves.png", "free", "tiny", 3, family=DEEPSEEK_OCR
    )  # a page that the image gate shuts out
    names = [*run_teacher_forced(EngineSubject(tiny), shut, seen(tiny, shut)).seams]
    assert [name for name in names if "/" not in name] == ["prefill"]


@pytest.mark.parametrize("level", Level)
def test_an_answer_goes_as_far_as_the_level(level: Level, tiny: Engine[Any], case: Case, own: ReferenceResult) -> None:
    answer = run_teacher_forced(only(EngineSubject(tiny), level), case, own)
    assert answer.level is level
    assert answer.text == own.output.text
    assert (answer.inputs is not None) is (level >= Level.INPUTS)
    assert (answer.forced is not None) is (answer.prefill_best is not None) is (level >= Level.STAGES)
    assert any("/" in name for name in answer.seams) is (level >= Level.MODULES)
    assert answer.promised == ({"vision_fusion", "prefill"} if level >= Level.STAGES else set())
    assert (answer.mmd, answer.artefacts) == (None, None)
    found = compare_observations(answer, own, tolerances("float32"))
    left = {one.what for one in found if one.reason is Reason.NOT_OFFERED}
    assert ("input_ids" in left, "prefill" in left, "tokens" in left) == (level < 1, level < 2, level < 2)
    assert {"result.mmd", "artefacts"} <= left


def test_extra_inputs_and_logits_of_another_dtype_and_shape_are_taken_without_gradients(
    tiny: Engine[Any], case: Case
) -> None:
    expected = seen(tiny, case, keep_values=True)
    subject = only(EngineSubject(tiny), Level.STAGES)
    inputs, vision, prefill, got = subject.inputs, subject.vision, subject.prefill, list[bool]()

    def without(given: dict[str, Tensor]) -> dict[str, Tensor]:
        got.extend(("attention_mask" in given, torch.is_grad_enabled()))
        return {name: tensor for name, tensor in given.items() if name != "attention_mask"}

    subject.inputs = lambda *page, **how: {**inputs(*page, **how), "attention_mask": torch.ones(1, 3)}
    subject.vision = lambda given: vision(without(given))

    def rounded(given: dict[str, Tensor], fused: Tensor) -> Any:
        state = prefill(without(given), fused)
        state.logits = state.logits[0].bfloat16()
        return state

    subject.prefill = rounded
    answer = run_teacher_forced(subject, case, expected)
    assert got == [True, False, True, False]
    logits = answer.seams["prefill"]
    assert (logits.dtype, logits.shape) == ("float32", expected.seams["prefill"].shape)
    assert every_bit(answer.inputs) == every_bit(expected.inputs)
    assert every_bit(answer.seams["vision_fusion"]) == every_bit(expected.seams["vision_fusion"])


@pytest.mark.parametrize(("rows", "value", "wrong"), [(7, -1e4, set()), (7, 1e4, {"tokens"}), (-1, 0.0, {"prefill"})])
def test_a_padded_vocabulary_is_noted_and_wrong_only_where_a_token_of_the_padding_is_chosen(
    rows: int, value: float, wrong: set[str], tiny: Engine[Any], case: Case, own: ReferenceResult
) -> None:
    subject = EngineSubject(tiny)

    def padded(logits: Tensor) -> Tensor:
        return functional.pad(logits, (0, rows), value=value)

    def prefill(*given: Any) -> Any:
        state = EngineSubject.prefill(subject, *given)
        return SimpleNamespace(logits=padded(state.logits), cache=state.cache, own=state)

    subject.prefill = prefill  # type: ignore[method-assign, assignment]
    subject.step = lambda state, token: padded(EngineSubject.step(subject, state.own, token))  # type: ignore[method-assign]
    notes: list[str] = []
    with watching(notes):
        answer = run_teacher_forced(subject, case, own)
    found = [*compare_observations(answer, own, tolerances("float32"))]
    assert {one.what for one in found if one.verdict is Verdict.WRONG} & {"prefill", "prefill_best", "tokens"} == wrong
    said = "the subject's vocabulary is padded: it gives 519 logits, the reference 512"
    assert [note.split(";")[0] for note in notes] == [said] * (rows > 0)


def test_a_subject_that_says_nothing_of_its_policy_is_held_to_the_vendors(
    tiny: Engine[Any], case: Case, own: ReferenceResult
) -> None:
    expected = observation(steps=own.steps[: DEEPSEEK_OCR.decoding.no_repeat_ngram_size] * 2)
    free, ruled = (
        run_teacher_forced(subject, case, expected).forced or ()
        for subject in (with_rule(tiny, no_repeat_ngram_size=0), only(EngineSubject(tiny), Level.STAGES))
    )
    assert [step.best for step in free] == [step.best for step in ruled]
    assert choices(free) != choices(ruled)


# What comes of its own steps where they first choose another token: its free reading.

ANY_TIE = tolerances("float32").but({"ties": 10**9})


def flipped(of: ReferenceResult, at: int, *, sees_own: bool = True) -> ReferenceResult:
    """Return a reference that chose the second of two equal best tokens at a step, and ended there."""
    first, second, *_ = of.steps[at].best.ids
    best = of.steps[at].best.logits[0]
    ids = (second, first) if sees_own else (first, max(of.steps[at].best.ids) + 1)
    steps = (*of.steps[:at], Step(second, Best(ids, (best, best))))
    return replace(of, steps=steps, output=replace(of.output, text="what it read"))


def continued(subject: EngineSubject, case: Case, expected: ReferenceResult) -> Output | None:
    return run_teacher_forced(subject, case, expected, tokenizer=subject.engine.tokenizer).continued


def test_it_ends_where_the_subject_would(tiny: Engine[Any], case: Case, own: ReferenceResult) -> None:
    subject, until = with_rule(tiny, eos_id=own.token_ids[15]), own.token_ids.index(own.token_ids[15])
    text = tiny.tokenizer.decode(own.token_ids[: until + 1])
    for at in (5, until):
        assert continued(subject, case, flipped(own, at)) == Output.of(text, case.page, DEEPSEEK_OCR.form)


def test_it_goes_by_the_subjects_rule_for_ngrams(tiny: Engine[Any], case: Case) -> None:
    subject = with_rule(tiny, no_repeat_ngram_size=1)
    own = seen(subject.engine, case)
    assert own.token_ids != seen(tiny, case).token_ids, "the rule forbade nothing, so this shows little"
    assert continued(subject, case, flipped(own, 3)) == own.output


def test_nothing_is_continued_where_nothing_differs_or_no_limits_make_a_tie_of_it(
    tiny: Engine[Any], case: Case, own: ReferenceResult
) -> None:
    subject = EngineSubject(tiny)
    for expected in (own, flipped(own, 7, sees_own=False)):
        assert continued(subject, case, expected) is None
    assert run_teacher_forced(subject, case, flipped(own, 7)).continued is None, "without a tokenizer"


class Liar(EngineSubject):
    """Reads nonsense, and says that this is what its tokens mean."""

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        return "nonsense"

    def text_of(self, token_ids: Sequence[int]) -> str:
        return "nonsense"


@pytest.mark.parametrize("at", [0, 7, TOKENS - 1])
def test_what_a_subject_says_of_its_tokens_is_not_what_they_mean(
    tiny: Engine[Any], case: Case, own: ReferenceResult, at: int
) -> None:
    expected = flipped(own, at)
    answer = run_teacher_forced(EngineSubject(tiny), case, expected, tokenizer=tiny.tokenizer)
    assert choices(answer.forced)[at] == own.token_ids[at]
    assert answer.continued == own.output
    for subject, verdicts in (
        (EngineSubject(tiny), (Verdict.TIE_FLIP, Verdict.MATCH, Verdict.TIE_FLIP)),
        (Liar(tiny), (Verdict.TIE_FLIP, Verdict.WRONG, Verdict.WRONG)),
    ):
        answer = run_teacher_forced(subject, case, expected, tokenizer=tiny.tokenizer)
        found = {one.what: one.verdict for one in compare_observations(answer, expected, ANY_TIE)}
        assert (found["tokens"], found["read"], found["text"]) == verdicts
