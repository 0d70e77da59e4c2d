"""A subject's answer to one case: as much of an observation as its level offers, and its steps along the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from torch import Tensor

from pytest_dsocr.observation.config import Level, SubjectFaultError
from pytest_dsocr.observation.observation import Artefact, Best, InputsDigest, NotFinite, Output, Seam, SpanSeen, Step

ROUNDED_DTYPES = ("bfloat16", "float16")
"""What a subject computes in where its rounding is looked at; float32 is held to narrow limits as it is."""


class Effect(NamedTuple):
    """How much of a known mistake's effect is in the difference from the vendor's kernels."""

    id: str
    words: str
    share: float
    """1 where the difference is the mistake's effect and rounding, 0 where it has nothing to do with it."""
    error: float
    """The standard error of ``share``, over tokens."""
    likelihood: float = 0.0
    """How much likelier the whole of its effect makes the difference than none of it does; a logarithm."""

    is_whole: bool = False
    """Whether it was looked for in the whole stage, and not in blocks."""

    @property
    def z(self) -> float:
        """How many standard errors the share is above 0."""
        return self.share / self.error if self.error else 0.0


@dataclass(frozen=True)
class Rounding:
    """A stage's error on one page against float32 on its own input, beside that of the vendor's kernels on that input.

    Two implementations that compute in bfloat16 both round, so how far they lie apart says little. Every part is
    computed again from what the subject itself put into it: in float32, which is the truth, and by the vendor's kernels
    in the subject's dtype. Errors do not pile up then, and none depends on the GPU that a recording was made on.
    """

    parts: int
    """The parts that were computed again: the stage for each view, and each block of a subject with named modules."""
    differing: float = 0.0
    """The share of its values that the vendor's kernels give otherwise; with 0 all else is as it is here."""
    is_whole: bool = False
    """Whether the rest is of the whole stage, in which errors add up; else it is of the blocks that differ."""
    part: str = ""
    """The part with the largest error."""
    ratio: float = 1.0
    """Its error against float32 over the vendor's: the median over tokens."""
    bias: float = 0.0
    """The mean square of the channels' mean differences over what independent rounding leaves of it, at most."""
    effects: tuple[Effect, ...] = ()
    """Of the known mistakes that were tried, those that may be in it."""
    tried: int = 0
    """How many known mistakes were tried."""
    untried: int = 0
    """How many the time for it did not allow."""
    fewer_bits: bool = False
    """Whether the subject may compute in fewer bits than its dtype has. Rounded weights err alike for all tokens."""


NO_CHOICE = -1
"""The token of a step whose logits hold NaN or infinity, among which there is no best."""


@dataclass(frozen=True)
class ForcedStep:
    """What the subject would have said after the reference's tokens so far."""

    token: int
    """Its own choice; :data:`NO_CHOICE` where it can have none."""
    best: Best
    """Its own best."""
    at_reference: tuple[float, ...]
    """Its logits of the reference's best."""
    not_finite: NotFinite | None = None
    """What of its logits is NaN or infinite, but for those that are forbidden with minus infinity."""

    def at_hand(self, expected: Step) -> Best:
        """Return the subject's best tokens, and the subject's logits of the reference's best tokens."""
        more = {
            token: logit
            for token, logit in zip(expected.best.ids, self.at_reference, strict=False)
            if token not in self.best.ids
        }
        return Best((*self.best.ids, *more), (*self.best.logits, *more.values()))

    def may_tie(self, expected: Step) -> bool:
        """Return whether there are limits under which it is a tie: whether both sides have logits at hand for one."""
        own = self.at_hand(expected).ids
        return self.token in own and expected.token in own and expected.token in expected.best.ids


Part = Literal["inputs", "vision", "prefill", "step", "read", "write"]
"""What a subject is asked for, by the method that gives it; ``read`` is also what ``text_of`` gives in its place."""


class KvSize(NamedTuple):
    """What a key-value cache takes."""

    layers: int
    bytes_per_token: int
    """Of one position, keys and values of all layers."""


@dataclass(frozen=True, eq=False)
class Answer:
    """One case's answer; what is above the subject's level, or was lost to its error, is None or empty."""

    case_id: str
    level: Level
    text: str
    """What it reads, with its markup: what its ``read`` gave, or, of a subject with a ``text_of`` whose tokens are the
    reference's to the end, what those mean."""
    spans: tuple[SpanSeen, ...]
    """As the contract reads ``text``."""
    mmd: str | None = None
    """The content of ``result.mmd``, of a subject that writes files."""
    artefacts: Mapping[str, Artefact] | None = None
    """The files written, of a subject that writes them."""
    inputs: InputsDigest | None = None
    seams: Mapping[str, Seam] = field(default_factory=dict)
    """As in an observation; of a subject with named modules also ``STAGE.page/3`` (the output of that block),
    ``prefill/3``, in the stages' order."""
    promised: frozenset[str] = frozenset()
    """The seams that the subject says it gives."""
    prefill_best: Best | None = None
    forced: tuple[ForcedStep, ...] | None = None
    """Its steps along the reference's tokens."""
    continued: Output | None = None
    """What its own steps come to from the first choice on that is not the reference's, if all that differ may be ties;
    as the checkpoint's tokenizer and the vendor make it of tokens."""
    ends: bool = True
    """Whether its policy ends the output where the reference's tokens end, as far as it tells."""
    text_of_tokens: str | None = None
    """Where it is ``reread``: what its ``text_of`` makes of those tokens, if it has one."""
    reread: bool = False
    """Whether its tokens are the reference's to the end, and ``text`` is nevertheless what its ``read`` gave."""
    first_token_ms: float | None = None
    """From the request to the first text of its ``read``, of a subject that streams and tells."""
    ended_by: str = ""
    """Why its last ``read`` ended, of a subject that says: ``length`` is a limit of tokens."""
    input_tensors: Mapping[str, Tensor] | None = None
    """Its inputs themselves, on their device, for who goes on from them; nobody may write to them."""
    vision_tensors: Mapping[str, Tensor] | None = None
    """What its vision gave, likewise."""
    rounding: Mapping[str, Rounding] = field(default_factory=dict)
    """How each stage rounds, of a subject that computes in fewer bits than float32, where it was looked at."""
    kv: KvSize | None = None
    """Of its cache after the prompt, where it shows one."""
    fault: SubjectFaultError | None = None
    """The error that ended it."""
    lost: frozenset[Part] = frozenset()
    """The parts that ``fault`` prevented, or, without one, that the subject does not offer of this case; its steps up
    to there are kept."""
    not_offered: frozenset[str] = frozenset()
    """What is in ``inputs`` that is not the subject's own."""

    def whole(self) -> Answer:
        """Return the answer, or raise the error that cut it short."""
        if self.fault is not None:
            raise self.fault.with_traceback(None)
        return self


class Reading(NamedTuple):
    """One of several readings of a page."""

    answer: Answer
    """Of a further reading the text, and the inputs where they are offered; the rest is the first one's."""
    after: str
    """The case that was read before it in the same process; empty where none was."""
    place: int
    """Which reading of that process it is, from 1 on."""
