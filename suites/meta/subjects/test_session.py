"""A session as a subject: along a reference's tokens, and freely where they part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from pytest_dsocr.case import Case, make_case
from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.tokens import ForcedStep
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract.artifacts import write_artifacts
from pytest_dsocr.contract.special import EOS
from pytest_dsocr.engine.session import Session
from pytest_dsocr.observation import Artefact, Best, Observation, Seam, SpanSeen, Step
from pytest_dsocr.packing import pack, unpack
from pytest_dsocr.subjects.session import SessionSubject
from suites.contract.pages import write_page
from suites.meta.compare.made import every_bit, observation
from suites.meta.conftest import model_of

TOKENS = 24
EMPTY = observation(steps=())


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for name in ("tiny", "portrait", "halves"):
        write_page(name, folder)
    return folder


@pytest.fixture(scope="module")
def case(pages: Path) -> Case:
    return make_case(pages / "tiny.png", "free", "tiny", TOKENS)


@pytest.fixture(scope="module")
def own(tiny: Session[Any], case: Case) -> Observation:
    """What the session does by itself."""
    return SessionSubject(tiny).follow(case, EMPTY)[0]


@pytest.fixture(scope="module")
def another(case: Case) -> Observation:
    """What other weights say of the same page."""
    return SessionSubject(Session.from_checkpoint("synthetic:tiny@3")).follow(case, EMPTY)[0]


def with_rule(session: Session[Any], **rules: int) -> SessionSubject:
    return SessionSubject(Session(session.model, session.tokenizer, policy=replace(session.policy, **rules)))


class Calls:
    """How often the model is asked to see and to decode."""

    def __init__(self, session: Session[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = {"sam": 0, "decode": 0}
        for name in self.count:
            self._count(model_of(session), name, monkeypatch)

    def _count(self, model: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        original = getattr(model, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            self.count[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(model, name, counted)


def test_left_to_itself_it_does_what_the_session_does(tiny: Session[Any], case: Case, own: Observation) -> None:
    inputs = tiny.prepare(case.page, prompt=case.prompt, preset=case.preset)
    result = tiny.run_prepared(inputs, max_new_tokens=TOKENS)
    assert own.case_id == "tiny-tiny-free"
    assert own.token_ids == result.token_ids
    assert len(own.steps) == TOKENS
    assert own.output.text == result.text
    assert own.output.spans == tuple(SpanSeen(span.label, span.boxes) for span in result.markup.spans)
    assert own.output.spans, "the page has no boxes, so this shows little"
    assert own.inputs.prompt_ids == inputs.input_ids[0].tolist()


def test_along_its_own_tokens_it_says_the_same_and_decodes_once(
    tiny: Session[Any], case: Case, own: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, told = Calls(tiny, monkeypatch), list[int]()
    mine, forced = SessionSubject(tiny).follow(case, own, told.append)
    assert [step.token for step in forced] == list(own.token_ids)
    assert every_bit(mine) == every_bit(own)
    assert calls.count == {"sam": 1, "decode": TOKENS}
    assert told == [*range(TOKENS)]
    found = list(compare_observations(mine, forced, own, tolerances("float32")))
    assert {comparison.verdict for comparison in found} == {Verdict.MATCH}


def test_along_anothers_tokens_it_decodes_freely_as_well(
    tiny: Session[Any], case: Case, own: Observation, another: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert another.token_ids != own.token_ids
    shorter = replace(another, steps=another.steps[:7])
    calls, told = Calls(tiny, monkeypatch), list[int]()
    mine, forced = SessionSubject(tiny).follow(case, shorter, told.append)
    assert every_bit(mine) == every_bit(own)
    assert len(forced) == 7
    assert calls.count == {"sam": 1, "decode": 7 + TOKENS}
    assert told == [*range(7), *range(TOKENS)]


def along(session: Session[Any], case: Case, tokens: Sequence[int]) -> Tensor:
    """The logits after the prompt and after each of ``tokens`` but the last, of one pass over all: ``[T, V]``."""
    inputs = session.prepare(case.page, prompt=case.prompt, preset=case.preset)
    more = torch.tensor([list(tokens[:-1])])
    longer = replace(
        inputs,
        input_ids=torch.cat([inputs.input_ids, more], dim=1),
        images_seq_mask=torch.cat([inputs.images_seq_mask, torch.zeros_like(more, dtype=torch.bool)], dim=1),
    )
    every = session.prefill(longer, all_logits=True).all_logits
    assert every is not None
    return every[0, inputs.prompt_tokens - 1 :]


@pytest.mark.parametrize("whose", ["own", "another"])
def test_each_forced_step_is_that_of_one_teacher_forced_pass(
    whose: str, tiny: Session[Any], case: Case, request: pytest.FixtureRequest
) -> None:
    theirs: Observation = request.getfixturevalue(whose)
    _, forced = with_rule(tiny, no_repeat_ngram_size=0).follow(case, theirs)
    rows = along(tiny, case, theirs.token_ids)
    assert len(rows) == len(forced) == len(theirs.steps)
    for row, mine, step in zip(rows, forced, theirs.steps, strict=True):
        assert mine.token == mine.best.ids[0] == int(row.argmax())
        torch.testing.assert_close(torch.tensor(mine.at_reference), row[list(step.best.ids)], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(torch.tensor(mine.best.logits), row.topk(5).values, rtol=1e-4, atol=1e-4)


def repeats(history: Sequence[int], size: int, token: int) -> bool:
    """Whether ``token`` would end a run of ``size`` that ``history`` holds, by trying every place."""
    run = [*history[len(history) - size + 1 :], token]
    return any(list(history[k : k + size]) == run for k in range(len(history) - size + 1))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_ngram_rule_looks_back_on_the_references_tokens(size: int, tiny: Session[Any], case: Case) -> None:
    unruled = with_rule(tiny, no_repeat_ngram_size=0)
    pattern = unruled.follow(case, EMPTY)[0].steps[:4]
    theirs = observation(steps=pattern * 3)
    _, free = unruled.follow(case, theirs)
    _, ruled = with_rule(tiny, no_repeat_ngram_size=size).follow(case, theirs)
    prompt = tiny.prepare(case.page, prompt=case.prompt, preset=case.preset).input_ids[0].tolist()
    changed = 0
    for k, (mine, unbound) in enumerate(zip(ruled, free, strict=True)):
        history = prompt + list(theirs.token_ids[:k])
        assert every_bit(mine.best) == every_bit(unbound.best), "the best are those before any rule"
        allowed = [token for token in unbound.best.ids if not repeats(history, size, token)]
        assert mine.token == allowed[0]
        changed += mine.token != unbound.token
    assert changed, "the rule never applied"


def test_free_decoding_keeps_to_the_ngram_rule(tiny: Session[Any], case: Case) -> None:
    subject = with_rule(tiny, no_repeat_ngram_size=1)
    steps = subject.follow(case, EMPTY)[0].steps
    tokens = subject.session.run_prepared(
        tiny.prepare(case.page, prompt=case.prompt, preset=case.preset), max_new_tokens=TOKENS
    ).token_ids
    assert tuple(step.token for step in steps) == tokens
    assert len(set(tokens)) == TOKENS
    assert any(step.token != step.best.ids[0] for step in steps), "the rule never applied"


def first_new(tokens: Sequence[int], after: int) -> int:
    """The place of the first token from ``after`` on that was not there before."""
    return next(k for k in range(after, len(tokens)) if tokens[k] not in tokens[:k])


@pytest.fixture(scope="module")
def ending(tiny: Session[Any], own: Observation) -> tuple[SessionSubject, int]:
    """A subject for which a token in the midst of the output is the EOS, and the length of its output."""
    at = first_new(own.token_ids, 3)
    return with_rule(tiny, eos_id=own.token_ids[at]), at + 1


def test_it_stops_at_eos(
    ending: tuple[SessionSubject, int], case: Case, own: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, length = ending
    assert 3 < length < TOKENS
    alone = subject.follow(case, EMPTY)[0]
    assert alone.token_ids == own.token_ids[:length]
    calls = Calls(subject.session, monkeypatch)
    assert every_bit(subject.follow(case, alone)[0].steps) == every_bit(alone.steps)
    assert calls.count["decode"] == length, "it decoded freely what it had followed to its end"


def test_the_text_is_without_the_eos_and_the_line_break_before_it(
    tiny: Session[Any], case: Case, own: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    span = next(k for k, token in enumerate(own.token_ids) if tiny.tokenizer.decode([token]).endswith("|>\n"))
    model, outputs = model_of(tiny), list[Tensor]()
    decode = model.decode

    def ending(*arguments: Any, **options: Any) -> Tensor:
        logits = decode(*arguments, **options)
        outputs.append(logits)
        if len(outputs) > span + 2:  # the prompt is read twice, along the reference's tokens and freely
            logits[..., tiny.policy.eos_id] = 99.0
        return logits

    monkeypatch.setattr(model, "decode", ending)
    mine, _ = SessionSubject(tiny).follow(case, EMPTY)
    assert mine.token_ids == (*own.token_ids[: span + 1], tiny.policy.eos_id)
    assert tiny.tokenizer.decode(mine.token_ids).endswith(f"|>\n{EOS}")
    assert mine.output.text == tiny.tokenizer.decode(own.token_ids[: span + 1]).strip()


def test_it_stops_at_eos_where_a_reference_of_the_same_tokens_did_not(
    ending: tuple[SessionSubject, int], case: Case, own: Observation
) -> None:
    subject, length = ending
    mine, forced = subject.follow(case, own)
    assert [step.token for step in forced] == list(own.token_ids)
    assert mine.token_ids == own.token_ids[:length]


@pytest.mark.parametrize("length", [1, TOKENS // 2, TOKENS - 1])
def test_it_goes_on_where_a_reference_of_the_same_tokens_stopped(
    length: int, tiny: Session[Any], case: Case, own: Observation
) -> None:
    mine, forced = SessionSubject(tiny).follow(case, replace(own, steps=own.steps[:length]))
    assert len(forced) == length
    assert mine.token_ids == own.token_ids


def test_the_cases_ceiling_holds_and_not_the_sessions(tiny: Session[Any], case: Case, own: Observation) -> None:
    for ceiling in (2, 2 * TOKENS):
        subject = with_rule(tiny, max_new_tokens=ceiling)
        assert subject.follow(case, EMPTY)[0].token_ids == own.token_ids


def test_a_reference_that_ended_before_it_began_gives_no_forced_steps(tiny: Session[Any], case: Case) -> None:
    assert SessionSubject(tiny).follow(case, EMPTY)[1] == ()


def test_seams_are_those_of_the_session(tiny: Session[Any], pages: Path) -> None:
    case = make_case(pages / "portrait.png", "markdown", "gundam", 1)
    mine, _ = SessionSubject(tiny, keep_values=True).follow(case, EMPTY)
    state = tiny.prefill(tiny.prepare(case.page, prompt=case.prompt, preset=case.preset))
    expected = {**state.visions[0].seams, "prefill": state.logits[0]}
    assert list(mine.seams) == [
        *(f"{stage}.{view}" for stage in ("sam", "clip", "projector") for view in ("crops", "page")),
        "vision_fusion",
        "prefill",
    ]
    for name, tensor in expected.items():
        assert every_bit(mine.seams[name]) == every_bit(Seam.of(tensor, keep_values=True))
    assert mine.prefill_best == Best.of(state.logits[0], 20)
    assert mine.steps == (Step(mine.token_ids[0], Best.of(state.logits[0])),)


def test_seams_and_inputs_are_kept_whole_where_asked_and_pass_through_a_file(tiny: Session[Any], case: Case) -> None:
    mine, _ = SessionSubject(tiny, keep_values=True).follow(case, EMPTY)
    assert mine.inputs.values is not None
    assert all(seam.values is not None for seam in mine.seams.values())
    packed, tensors = pack(mine)
    again = unpack(packed, safetensors.torch.load(safetensors.torch.save(tensors)), {})
    assert every_bit(again) == every_bit(mine)


def test_nothing_is_kept_whole_where_not_asked(own: Observation) -> None:
    assert own.inputs.values is None
    assert own.logits is None
    assert not any(seam.values is not None for seam in own.seams.values())


def test_a_page_that_the_image_gate_shuts_out_has_no_vision_seams(tiny: Session[Any], pages: Path) -> None:
    case = make_case(pages / "halves.png", "free", "tiny", 3)
    mine, _ = SessionSubject(tiny).follow(case, EMPTY)
    assert list(mine.seams) == ["prefill"]
    assert len(mine.steps) == 3


def test_files_are_those_that_are_written_for_the_text(case: Case, own: Observation, tmp_path: Path) -> None:
    written = write_artifacts(own.output.text, case.page, tmp_path)
    assert {"result.mmd", "result_with_boxes.jpg", "info.json"} <= set(own.output.artefacts)
    assert set(own.output.artefacts) == {path.relative_to(tmp_path).as_posix() for path in written.paths}
    for name, artefact in own.output.artefacts.items():
        assert artefact.size_px == Artefact.of(tmp_path / name).size_px
        if name != "result_with_boxes.jpg":
            assert artefact == Artefact.of(tmp_path / name)
    assert own.output.mmd == (tmp_path / "result.mmd").read_bytes().decode()
    assert own.output.mmd != own.output.text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_says_what_it_computes_in(dtype: str) -> None:
    assert SessionSubject(Session.from_checkpoint("synthetic:tiny", dtype=dtype)).dtype == dtype


def test_forced_steps_hold_the_logits_of_the_references_best(tiny: Session[Any], case: Case, own: Observation) -> None:
    asked = Step(own.token_ids[0], Best((5, 499, 3), (0.0, 0.0, 0.0)))
    [step] = SessionSubject(tiny).follow(case, replace(own, steps=(asked,)))[1]
    logits = tiny.prefill(tiny.prepare(case.page, prompt=case.prompt, preset=case.preset)).logits[0]
    assert step == ForcedStep(own.token_ids[0], Best.of(logits), tuple(logits[[5, 499, 3]].tolist()))
