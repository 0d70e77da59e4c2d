"""A case put to a subject: along the reference's tokens, and freely where the two part."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from pytest_dsocr.answer import Answer
from pytest_dsocr.case import Case
from pytest_dsocr.compare.artefacts import MMD
from pytest_dsocr.compare.tokens import ForcedStep
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.contract.mmd import clean_output
from pytest_dsocr.contract.policy import DEFAULT_NGRAM, DecodePolicy, NgramBan
from pytest_dsocr.contract.special import TextTokenizer
from pytest_dsocr.deep_seams import DeepSeams, in_stage_order, watch_deep
from pytest_dsocr.engine.greedy import pick
from pytest_dsocr.observation import (
    BEST_OF_PREFILL,
    Artefact,
    Best,
    InputsDigest,
    Observation,
    Seam,
    SpanSeen,
    Step,
)
from pytest_dsocr.subjects.checked import INPUTS, CheckedSubject
from pytest_dsocr.subjects.continuing import Continuing
from pytest_dsocr.subjects.fault import SubjectFaultError, at_stage
from pytest_dsocr.subjects.protocol import DecodeView, Level, TextSubject

OnToken = Callable[[int], None]


def nobody(step: int) -> None:
    """Tell nobody of a step."""


def follow(
    subject: TextSubject,
    case: Case,
    theirs: Observation,
    on_token: OnToken = nobody,
    *,
    always_read: bool = False,
    tokenizer: TextTokenizer | None = None,
) -> Answer:
    """Ask ``subject`` everything about ``case`` that its level offers.

    Its steps go along the reference's tokens, so that one that differs does not hide the next. Where every choice is
    the reference's and decoding ends where the reference's did, a subject with a ``text_of`` is not asked to read.
    Tensors are kept whole where the reference's are.

    Args:
        subject: of any level.
        case: what to read.
        theirs: what the reference saw of it.
        on_token: called with the number of each step along the reference's tokens.
        always_read: let a subject with a ``text_of`` read as well: whether that goes through its stages is its word.
        tokenizer: the checkpoint's; without it nothing is known of what may follow a tie, and nothing excused.

    Raises:
        SubjectFaultError: where the subject raises, or gives what is no answer; it names the stage.
    """
    asked = CheckedSubject(subject)
    answer = Answer(case.id, asked.level, "", ())
    with torch.no_grad():
        if asked.level >= Level.INPUTS:
            inputs = asked.inputs(case)
            answer = replace(answer, inputs=digest(inputs, theirs))
        if asked.level >= Level.STAGES:
            answer, vision_fusion = _with_stages(answer, asked, inputs, theirs, on_token)
            if tokenizer:
                walk = Continuing(asked, inputs, vision_fusion, case, tokenizer)
                answer = replace(answer, continued=walk.output(answer.forced or (), theirs))
        return _with_output(answer, asked, case, theirs, always_read)


def digest(inputs: Mapping[str, Tensor], theirs: Observation) -> InputsDigest:
    """Sum up the vendor's five tensors among ``inputs``, whole where the reference's are."""
    own = {name: inputs[name] for name in INPUTS}
    with at_stage("tokenizer", "inputs"):
        return InputsDigest.of(own, keep_values=keeps_values(theirs))


def keeps_values(theirs: Observation) -> bool:
    """Say whether the reference's tensors are at hand."""
    return theirs.inputs.values is not None


def steps_along(
    asked: CheckedSubject,
    inputs: Mapping[str, Tensor],
    state: DecodeView,
    logits: Tensor,
    theirs: Sequence[Step],
    on_token: OnToken = nobody,
) -> Iterator[ForcedStep]:
    """Yield every step along the reference's from a prefilled ``state`` and its ``logits`` ``[V]``."""
    size = asked.policy.no_repeat_ngram_size if asked.policy else DEFAULT_NGRAM
    ban = NgramBan(size, inputs["input_ids"][0].tolist())
    for k, step in enumerate(theirs):
        own = logits if k == 0 else asked.step(state, theirs[k - 1].token)
        yield _forced(own, step, ban)
        ban.push(step.token)
        on_token(k)


def _forced(logits: Tensor, theirs: Step, ban: NgramBan) -> ForcedStep:
    if max(theirs.best.ids) >= len(logits):
        raise SubjectFaultError(
            "decode",
            f"the subject gave {len(logits)} logits, and the reference has token {max(theirs.best.ids)}; "
            "give those of the whole vocabulary",
        )
    [choice] = pick(logits[None], [ban.banned()])
    return ForcedStep(choice, Best.of(logits), tuple(logits[list(theirs.best.ids)].tolist()))


def _with_stages(
    answer: Answer, asked: CheckedSubject, inputs: Mapping[str, Tensor], theirs: Observation, on_token: OnToken
) -> tuple[Answer, Tensor | None]:
    with watch_deep(asked.subject.module) if asked.level >= Level.MODULES else nullcontext(DeepSeams()) as deep:
        vision = asked.vision(inputs)
        state, logits = asked.prefill(inputs, vision.get("vision_fusion"))
    keep = keeps_values(theirs)
    seams = {name: Seam.of(tensor, keep_values=keep) for name, tensor in {**vision, "prefill": logits}.items()}
    answer = replace(
        answer,
        seams=in_stage_order({**seams, **deep.seams}),
        promised=asked.promised,
        prefill_best=Best.of(logits, BEST_OF_PREFILL),
        forced=tuple(steps_along(asked, inputs, state, logits, theirs.steps, on_token)),
    )
    return answer, vision.get("vision_fusion")


def _with_output(answer: Answer, asked: CheckedSubject, case: Case, theirs: Observation, always_read: bool) -> Answer:
    tokens, choices = theirs.token_ids, tuple(step.token for step in answer.forced or ())
    same = bool(choices) and choices == tokens and _ends(asked.policy, case, tokens)
    told = same and asked.tells_text and not always_read
    text = clean_output(asked.text_of(tokens)) if told else asked.read(case)
    spans = tuple(SpanSeen(span.label, span.boxes) for span in parse(text).spans)
    answer = replace(answer, text=text, spans=spans, reread=same and not told)
    if not asked.writes:
        return answer
    mmd, artefacts = _written(asked, text, case.page)
    return replace(answer, mmd=mmd, artefacts=artefacts)


def _ends(policy: DecodePolicy | None, case: Case, tokens: Sequence[int]) -> bool:
    """Say whether a subject that gives the reference's ``tokens`` ends with them; as the vendor decodes, it does."""
    if policy is None:
        return True
    return policy.eos_id not in tokens[:-1] and (tokens[-1] == policy.eos_id or len(tokens) == case.max_new_tokens)


def _written(asked: CheckedSubject, text: str, page: Path) -> tuple[str, dict[str, Artefact]]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        asked.write(text, page, folder)
        with at_stage("postprocess", "write"):
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            artefacts = {path.relative_to(folder).as_posix(): Artefact.of(path) for path in files}
            return (folder / MMD).read_bytes().decode(), artefacts
