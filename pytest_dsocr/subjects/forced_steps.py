"""A subject's steps along the reference's tokens: reduced on the subject's device, and fetched when all are done.

Shapes: V vocabulary, T steps, B of them at once, K best tokens of a step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, chain

import torch
from torch import Tensor

from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.engine.pipeline import pick
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.records.columns import Columns, best_of_steps, fetched_best
from pytest_dsocr.records.config import SubjectFaultError
from pytest_dsocr.records.reference_result import NotFinite, ReferenceResult, Step
from pytest_dsocr.records.subject_result import NO_CHOICE, ForcedStep
from pytest_dsocr.subjects.calls import at_stage, current
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.protocol import DecodeView


class ForcedSteps:
    """Measurements of each step's logits.

    The n-gram rule's banned tokens are computed before the first step, and copied to the device once.

    Args:
        expected: the reference's steps.
        ban: the n-gram rule, after the prompt.
    """

    def __init__(self, expected: Sequence[Step], ban: NgramBan) -> None:
        self._expected = expected
        self._banned = _banned(expected, ban)
        self._seen = Columns(self._reduced)
        self._sizes: list[int] = []
        self._reference_TK, self._bans = _padded(expected), torch.tensor([*chain(*self._banned)], dtype=torch.long)
        self._steps_of_bans = torch.tensor([k for k, bans in enumerate(self._banned) for _ in bans], dtype=torch.long)
        self._first_ban = [0, *accumulate(map(len, self._banned))]

    @property
    def kept(self) -> Iterator[Tensor]:
        """Every tensor that is kept until :meth:`fetch`."""
        return chain(self._seen.kept, (self._reference_TK, self._bans, self._steps_of_bans))

    def see(self, logits: Tensor) -> None:
        """Take the next step's logits ``[V]``, float32; nothing waits for them, and they are not kept for long.

        Raises:
            SubjectFaultError: where they are not of the whole vocabulary.
        """
        k = len(self._seen)
        banned = self._banned[k]
        highest = max(*self._expected[k].best.ids, *banned, 0)
        if highest >= len(logits):
            raise SubjectFaultError(
                "decode",
                f"the subject gave {len(logits)} logits, and the reference has token {highest}; "
                "give those of the whole vocabulary",
            )
        if self._reference_TK.device != logits.device:
            self._reference_TK, self._bans, self._steps_of_bans = (
                known.to(logits.device) for known in (self._reference_TK, self._bans, self._steps_of_bans)
            )
        self._sizes.append(len(logits))
        self._seen.add(logits)

    def _reduced(self, logits_BV: Tensor, first: int) -> tuple[Tensor, ...]:
        end = first + len(logits_BV)
        bans = slice(self._first_ban[first], self._first_ban[end])
        allowed_BV = logits_BV
        if bans.start < bans.stop:
            at = (self._steps_of_bans[bans] - first, self._bans[bans])
            allowed_BV = logits_BV.index_put(at, logits_BV.new_full((), -torch.inf))
        at_reference = logits_BV.gather(1, self._reference_TK[first:end])
        return allowed_BV.argmax(1), *best_of_steps(logits_BV), at_reference, *_spoilt(logits_BV)

    def fetch(self) -> tuple[ForcedStep, ...]:
        """Return every step that was seen; waits for them.

        Raises:
            SubjectFaultError: where the subject's device failed meanwhile.
        """
        if not len(self._seen):
            return ()
        with at_stage("decode", "step"):
            choices, ids, best, at_reference, *spoilt = self._seen.fetch()
        not_finite = map(_not_finite, self._sizes, *spoilt)
        rows = zip(self._expected, choices, fetched_best(ids, best), at_reference, not_finite, strict=False)
        return tuple(
            ForcedStep(NO_CHOICE if bad else choice, own, tuple(logits[: len(expected.best.ids)]), bad)
            for expected, choice, own, logits, bad in rows
        )


def _not_finite(size: int, values: int, nans: int, first: int) -> NotFinite | None:
    return NotFinite(nans, size - values - nans, size, (first,)) if values < size else None


def _banned(expected: Sequence[Step], ban: NgramBan) -> list[list[int]]:
    found = []
    for step in expected:
        found.append(ban.banned())
        ban.push(step.token)
    return found


def _padded(expected: Sequence[Step]) -> Tensor:
    """Return the ids of the reference's best, ``[T, K]``; where a step has fewer, its first again."""
    most = max((len(step.best.ids) for step in expected), default=0)
    rows = [[*step.best.ids, *step.best.ids[:1] * (most - len(step.best.ids))] for step in expected]
    return torch.tensor(rows, dtype=torch.long)


def _spoilt(logits_BV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Count the values that are neither NaN nor infinity, and those that are NaN; and say where the first is of either.

    Minus infinity forbids a token and counts as a value.
    """
    is_value = logits_BV < torch.inf
    return is_value.sum(1), (logits_BV != logits_BV).sum(1), is_value.view(torch.uint8).argmin(1)


OnToken = Callable[[int], None]


def nobody(step: int) -> None:
    """Ignore a step."""


def steps_along(
    asked: CheckedSubject,
    state: DecodeView,
    logits: Tensor,
    expected: Sequence[Step],
    steps: ForcedSteps,
    on_token: OnToken = nobody,
) -> None:
    """Decode along the reference's tokens from a prefilled ``state`` and its ``logits`` ``[V]``, and note each step."""
    for k in range(len(expected)):
        steps.see(logits if k == 0 else asked.step(state, expected[k - 1].token))
        on_token(k)


def forced_steps(
    asked: CheckedSubject, inputs: Mapping[str, Tensor], expected: Sequence[Step], family: ModelSpec
) -> ForcedSteps:
    """Prepare to see the steps along the reference's, by the rule that the subject, or its family, chooses by."""
    return ForcedSteps(expected, (asked.policy or family.decoding).ban(inputs["input_ids"][0].tolist()))


def go_on(step: Callable[[int], Tensor], tokens: list[int], ban: NgramBan, eos_id: int, limit: int) -> None:
    """Decode freely after ``tokens`` and append up to ``limit``; ``step`` feeds a token and returns logits ``[V]``."""
    while len(tokens) < limit and tokens[-1] != eos_id:
        tokens += pick(step(tokens[-1])[None], [ban.banned()])
        ban.push(tokens[-1])


def without_padding(logits: Tensor, expected: ReferenceResult) -> Tensor:
    """Return the logits ``[V]`` of the reference's vocabulary, and note that more were given, as of a padded table.

    The steps see all of them, so that a token of the padding that is chosen is another token.
    """
    rows = expected.seams["prefill"].shape[-1] if "prefill" in expected.seams else len(logits)
    if len(logits) > rows:
        current().note(
            f"the subject's vocabulary is padded: it gives {len(logits)} logits, the reference {rows}; these are "
            "compared, and a token of the others that is chosen is WRONG"
        )
    return logits[:rows]
