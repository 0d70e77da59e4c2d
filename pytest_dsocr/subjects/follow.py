"""Questions to a subject about one case: steps along the reference's tokens, then free decoding if tokens differ."""

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.base.exact_types import to_builtin
from pytest_dsocr.contract import TENSORS
from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.records.block_seams import in_stage_order, watch_deep
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Level, NotOfferedError, SubjectFaultError
from pytest_dsocr.records.passes import places_of
from pytest_dsocr.records.reference_result import (
    BEST_OF_PREFILL,
    Artefact,
    Best,
    InputsDigest,
    Output,
    ReferenceResult,
    Seam,
)
from pytest_dsocr.records.subject_result import ForcedStep, SubjectPart, SubjectResult
from pytest_dsocr.subjects.calls import at_stage
from pytest_dsocr.subjects.checked import ALWAYS_PROMISED, CheckedSubject
from pytest_dsocr.subjects.forced_steps import OnToken, forced_steps, go_on, nobody, steps_along, without_padding
from pytest_dsocr.subjects.kv_probe import KvProbe
from pytest_dsocr.subjects.protocol import DecodeView, TextSubject
from pytest_dsocr.subjects.retrace import UNSEEN, Retracer, TieLimits


def run_teacher_forced(
    subject: TextSubject,
    case: Case,
    expected: ReferenceResult,
    on_token: OnToken = nobody,
    *,
    always_read: bool = False,
    tokenizer: TextTokenizer | None = None,
    limits: TieLimits | None = None,
) -> SubjectResult:
    """Ask ``subject`` everything about ``case`` that its level offers.

    Its steps follow the reference's tokens, because a different token would hide the steps after it. If all tokens
    equal the reference's, a subject with ``text_of`` is not asked to read. Tensors are kept whole if the reference's
    are. The first error or invalid result ends the questions. The answer then has the earlier results, the error, and
    the names of the parts that are missing.

    Args:
        subject: a subject of any level.
        case: the page, prompt and preset.
        expected: the reference's result of the case.
        on_token: called with the number of each step along the reference's tokens.
        always_read: ask a subject with ``text_of`` to read too, to check that ``read`` uses the stages.
        tokenizer: the checkpoint's; without it, no difference after a tie is excused.
        limits: within which ``read`` and the subject's own steps may tie; without them, both must agree.

    Raises:
        DsocrError: where it is no subject, or does not offer the case.
    """
    following = _Following(CheckedSubject(subject), case, expected, on_token, tokenizer, limits)
    with torch.no_grad():
        try:
            following.ask(always_read)
        except SubjectFaultError as fault:
            following.learn(fault=fault, lost=frozenset(following.left))
    return following.answer


@dataclass
class _Following:
    """Dialogue with a subject about one case, and the answer so far."""

    asked: CheckedSubject
    case: Case
    expected: ReferenceResult
    on_token: OnToken
    tokenizer: TextTokenizer | None
    limits: TieLimits | None

    def __post_init__(self) -> None:
        self.answer = SubjectResult(self.case.id, self.asked.level, "", ())
        self.left: list[SubjectPart] = [
            *(("inputs",) if self.asked.level >= Level.INPUTS else ()),
            *(("vision", "prefill", "step") if self.asked.level >= Level.STAGES else ()),
            "read",
        ]
        """The parts of the answer that are still missing; the one in progress first."""
        self.page: tuple[Mapping[str, Tensor], Tensor | None] | None = None
        """Inputs and features, if the subject took all steps."""

    def learn(self, **said: Any) -> None:
        """Add to the answer."""
        self.answer = replace(self.answer, **said)

    def ask(self, always_read: bool) -> None:
        """Request the parts of the answer in order, or raise ``NotOfferedError``."""
        self.asked.offers.check(self.case)
        if self.asked.writes:
            self.left.append("write")
        if self.asked.level >= Level.INPUTS:
            self.asked.announce(self.case, self.expected.token_ids)
            inputs = self.asked.inputs(self.case, partial=True)
            lent = self.asked.not_offered
            self.learn(inputs=digest(inputs, self.expected), not_offered=lent)
            self.learn(input_tensors=None if lent.intersection(TENSORS) else inputs)
            self.left.remove("inputs")
        if self.asked.level >= Level.STAGES:
            with self._as_offered("vision", "prefill", "step"):
                self._stages(inputs)
        with self._as_offered("read"):
            self._output(always_read)

    @contextmanager
    def _as_offered(self, *parts: SubjectPart) -> Iterator[None]:
        """Leave out what the subject turns out not to offer of this case: it is absent, and not lost to an error."""
        try:
            yield
        except NotOfferedError:
            self.learn(lost=self.answer.lost.union({*parts}.intersection(self.left)))
            self.left = [part for part in self.left if part not in parts]

    def _stages(self, inputs: Mapping[str, Tensor]) -> None:
        self.learn(promised=ALWAYS_PROMISED)
        self.learn(promised=self.asked.promised)
        with self._watched(inputs):
            vision = self.asked.vision(inputs, partial=True)
            blocks = self.asked.block_outputs
            self._see("vision", {**{name: blocks[name] for name in blocks.keys() & self.expected.seams}, **vision})
            self.learn(vision_tensors=vision)
            self.left.remove("vision")
            state, logits = self.asked.prefill(inputs, vision.get("vision_fusion"))
            compared = without_padding(logits, self.expected)
            self._see("prefill", {"prefill": compared})
        self.learn(prefill_best=Best.of(compared, BEST_OF_PREFILL))
        # the cache belongs to no stage: a test that needs it asks again, and fails
        with suppress(SubjectFaultError, NotOfferedError):
            self.learn(kv=KvProbe(state).size)
        self.left.remove("prefill")
        steps = forced_steps(self.asked, inputs, self.expected.steps, self.case.family)
        try:
            with self._as_offered("step"):
                steps_along(self.asked, state, logits, self.expected.steps, steps, self.on_token)
        finally:
            forced = self._as_chosen(state, steps.fetch())
            self.learn(forced=forced)
        if self.tokenizer:
            self.page = (inputs, vision.get("vision_fusion"))
            with suppress(NotOfferedError):
                self._continue(*self.page, forced, self.tokenizer)
        self.left = [part for part in self.left if part != "step"]

    def _as_chosen(self, state: DecodeView, forced: tuple[ForcedStep, ...]) -> tuple[ForcedStep, ...]:
        """Replace the best token of the first step where ``chosen`` differs from the reference."""
        with at_stage("decode", "chosen"):
            chosen = [int(to_builtin(token)) for token in getattr(state, "chosen", ())]
        for k, (token, other, step) in enumerate(zip(chosen, self.expected.token_ids, forced, strict=False)):
            if token != other:
                return (*forced[:k], replace(step, token=token), *forced[k + 1 :])
        return forced

    def _continue(
        self,
        inputs: Mapping[str, Tensor],
        vision_fusion: Tensor | None,
        forced: Sequence[ForcedStep],
        tokenizer: TextTokenizer,
    ) -> None:
        """Learn what comes of the reference's tokens before the first choice that differs, that choice, and its own on.

        Nothing where no choice differs, or where one does that is no tie under any limits: then nothing is excused. The
        checkpoint's tokenizer decodes, for what a subject says of its tokens is not what they mean.
        """
        steps = self.expected.steps
        differing = [k for k, (own, step) in enumerate(zip(forced, steps, strict=False)) if own.token != step.token]
        if not differing or not all(forced[k].may_tie(steps[k]) for k in differing):
            return
        first = differing[0]
        tokens = [*self.expected.token_ids[:first], forced[first].token]
        policy = self.asked.policy or self.case.family.decoding.for_model(tokenizer.special.eos, None)
        ban = policy.ban([*inputs["input_ids"][0].tolist(), *tokens])
        state, _ = self.asked.prefill(inputs, vision_fusion)
        for token in tokens[:-1]:
            self.asked.step(state, token)
        go_on(partial(self.asked.step, state), tokens, ban, policy.eos_id, self.case.max_new_tokens)
        self.learn(continued=Output.of(tokenizer.decode(tokens), self.case.page, self.case.family.form))

    def _retrace(self, text: str) -> None:
        """Learn at which tie ``read`` left the subject's own choices, if ties explain the whole text."""
        own = self.answer.continued or self.expected.output
        forced, steps = self.answer.forced or (), self.expected.steps
        follows = all(one.token == step.token or one.may_tie(step) for one, step in zip(forced, steps, strict=False))
        if text == own.text or not (follows and self.page and self.tokenizer and self.limits):
            return
        with suppress(NotOfferedError):
            found = Retracer.of(self.asked, self.case, *self.page, self.tokenizer, self.limits).along(text)
            left_at = found.left_at(self.expected.token_ids)
            if found.is_whole and (found.ties or self._ties(left_at, found.tokens)):
                output = Output.of(self.tokenizer.decode(found.tokens), self.case.page, self.case.family.form)
                self.learn(continued=output, left_at=left_at)
            else:
                self.learn(retraced=found.words)

    def _ties(self, step: int, tokens: Sequence[int]) -> bool:
        """Return whether the token at ``step`` tied with the best one when the steps followed the reference's tokens.

        Kernels that differ from call to call may choose another token of a tie when the steps are taken again.
        """
        forced = self.answer.forced or ()
        if self.limits is None or not step < min(len(forced), len(tokens)):
            return False
        best = forced[step].best
        logits = dict(zip(best.ids, best.logits, strict=True))
        gap = best.logits[0] - logits.get(tokens[step], -math.inf)
        return gap <= UNSEEN * self.limits.ties * self.limits.ulp(best.logits[0])

    @contextmanager
    def _watched(self, inputs: Mapping[str, Tensor]) -> Iterator[None]:
        """Keep what the blocks of a subject with named modules give, also where an error ends it."""
        if self.asked.level < Level.MODULES:
            yield
            return
        with ExitStack() as hooks:
            with at_stage("vision", "module"):
                places = places_of(self.expected.seams, inputs)
                deep = hooks.enter_context(watch_deep(self.asked.subject.module, places))
            try:
                yield
            except SubjectFaultError:
                deep.passes.are_cut_short = True
                with suppress(RuntimeError):  # the device may be what failed
                    self._learn_seams(deep.seams)
                raise
            with at_stage("prefill", "prefill"):
                self._learn_seams(deep.seams)
                self.learn(unplaced=deep.unplaced)

    def _see(self, stage: str, tensors: Mapping[str, Tensor]) -> None:
        with at_stage(stage, stage):
            seams = {name: Seam.of(tensor, keep_values=keeps_values(self.expected)) for name, tensor in tensors.items()}
        self._learn_seams(seams)

    def _learn_seams(self, seams: Mapping[str, Seam]) -> None:
        self.learn(seams=in_stage_order({**self.answer.seams, **seams}))

    def _output(self, always_read: bool) -> None:
        tokens, choices = self.expected.token_ids, tuple(step.token for step in self.answer.forced or ())
        ends = not choices or _ends(self.asked.policy, self.case, tokens)
        same = ends and bool(choices) and choices == tokens
        message = clean_output(self.asked.text_of(tokens)) if same and self.asked.tells_text else None
        is_read = message is None or always_read
        text = self.asked.read(self.case) if message is None or is_read else message
        spans = self.case.spans_in(text)
        reread = same and (message is None or always_read)
        self.learn(text=text, spans=spans, ends=ends, reread=reread, text_of_tokens=message if reread else None)
        if is_read:
            self._retrace(text)
            self.learn(first_token_ms=self.asked.first_token_ms, ended_by=self.asked.ended_by)
        self.left.remove("read")
        if self.asked.writes:
            mmd, artefacts = _written(self.asked, text, self.case)
            self.learn(mmd=mmd, artefacts=artefacts)


def digest(inputs: Mapping[str, Tensor], expected: ReferenceResult) -> InputsDigest:
    """Sum up the vendor's five tensors among ``inputs``, whole where the reference's are."""
    own = {name: inputs[name] for name in TENSORS}
    with at_stage("tokenizer", "inputs"):
        return InputsDigest.of(own, keep_values=keeps_values(expected))


def keeps_values(expected: ReferenceResult) -> bool:
    """Return whether the reference's tensors are at hand."""
    return expected.inputs.values is not None


def _ends(policy: DecodePolicy | None, case: Case, tokens: Sequence[int]) -> bool:
    """Return whether a subject that chooses ``tokens`` ends with them; as the vendor decodes, it does."""
    if policy is None:
        return True
    return policy.eos_id not in tokens[:-1] and (tokens[-1] == policy.eos_id or len(tokens) == case.max_new_tokens)


def _written(asked: CheckedSubject, text: str, case: Case) -> tuple[str, dict[str, Artefact]]:
    with tempfile.TemporaryDirectory() as scratch:
        folder, file = Path(scratch), case.family.form.result_file
        asked.write(text, case.page, folder, file)
        with at_stage("postprocess", "write"):
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            artefacts = {path.relative_to(folder).as_posix(): Artefact.of(path) for path in files}
            return (folder / file).read_bytes().decode(), artefacts


def read_alone(subject: TextSubject, case: Case) -> SubjectResult:
    """Read the case's page to its end with ``subject``, of any level; return text and spans, and nothing else.

    Raises:
        SubjectFaultError: where it raises, or gives no text.
    """
    asked = CheckedSubject(subject)
    with torch.no_grad():
        text = asked.read(case)
    return SubjectResult(case.id, asked.level, text, case.spans_in(text))


def reading_of(answer: SubjectResult) -> SubjectResult:
    """Return of an answer what :func:`read_alone` would; raise the subject's error where the reading was lost to it.

    Raises:
        NotOfferedError: where the subject offers none of this case.
    """
    if "read" in answer.lost:
        answer.whole()
        raise NotOfferedError(f"not offered: a text of {answer.case_id}")
    return SubjectResult(answer.case_id, answer.level, answer.text, answer.spans)
