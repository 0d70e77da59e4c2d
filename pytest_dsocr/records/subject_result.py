"""A subject's answer to one case: as much of an observation as its level offers, and its steps along the reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from torch import Tensor

from pytest_dsocr.records.config import Level, SubjectFaultError
from pytest_dsocr.records.reference_result import Artefact, Best, InputsDigest, NotFinite, Output, Seam, SpanSeen, Step

HALF = "float16"
"""The dtype that ends at 65504, which values of a model may exceed."""
ROUNDED_DTYPES = ("bfloat16", HALF)
"""Dtypes of a subject whose rounding is analysed; a float32 subject has narrow limits and needs no analysis."""


class Effect(NamedTuple):
    """Share of a known mistake's effect in the difference between a subject and the vendor's kernels."""

    id: str
    words: str
    share: float
    """1 if the difference is the mistake's effect plus rounding, 0 if the mistake explains none of it."""
    error: float
    """The standard error of ``share``, over tokens."""
    likelihood: float = 0.0
    """Logarithm of the likelihood of the whole effect over that of no effect."""

    is_whole: bool = False
    """Whether the effect was searched for in the whole stage, not block by block."""

    @property
    def z(self) -> float:
        """Number of standard errors that the share lies above 0."""
        return self.share / self.error if self.error else math.inf if self.share else 0.0


@dataclass(frozen=True)
class Rounding:
    """Rounding error of a stage on one page: the subject's and the vendor's kernels', both against float32.

    Two implementations that compute in bfloat16 both round, so the distance between them says little. Every part is
    recomputed from the subject's own input to it: in float32, which is the truth, and with the vendor's kernels in the
    subject's dtype. So errors do not accumulate, and none depends on the GPU that a recording was made on.
    """

    parts: int
    """Number of recomputed parts: the stage for each view, and each block if the subject has named modules."""
    differing: float = 0.0
    """Share of values that differ from the vendor's kernels'; if it is 0, all other fields keep their defaults."""
    is_whole: bool = False
    """Whether the other fields describe the whole stage, where errors add up, or only the blocks that differ."""
    part: str = ""
    """The part with the largest error."""
    ratio: float = 1.0
    """Ratio of the subject's error against float32 to the vendor's, as the median over tokens."""
    bias: float = 0.0
    """Largest ratio of the mean square of the channels' mean differences to what independent rounding leaves of it.

    It is less where that of the vendor's kernels is above the usual, because tokens that are alike round alike."""
    effects: tuple[Effect, ...] = ()
    """Known mistakes that may be part of the difference."""
    tried: tuple[str, ...] = ()
    """Ids of the known mistakes that were tried."""
    untried: int = 0
    """Number of known mistakes that the time limit left untried."""
    fewer_bits: bool = False
    """Whether the subject may compute in fewer bits than its dtype has. Rounded weights err alike for all tokens."""
    is_exact: bool = False
    """Whether the vendor's kernels are exact, as in fusion. Then the ratio counts units of rounding, at most."""


NO_CHOICE = -1
"""Token of a step whose logits contain NaN or infinity, so that none is the best."""


@dataclass(frozen=True)
class ForcedStep:
    """Subject's step after the reference's tokens so far."""

    token: int
    """Token that the subject chooses; :data:`NO_CHOICE` if its logits allow none."""
    best: Best
    """Subject's best tokens, with their logits."""
    at_reference: tuple[float, ...]
    """Subject's logits of the reference's best tokens."""
    not_finite: NotFinite | None = None
    """Count of NaN and infinite logits, without the minus infinity of forbidden tokens."""

    def at_hand(self, expected: Step) -> Best:
        """Return the subject's best tokens, and the subject's logits of the reference's best tokens."""
        more = {
            token: logit
            for token, logit in zip(expected.best.ids, self.at_reference, strict=False)
            if token not in self.best.ids
        }
        return Best((*self.best.ids, *more), (*self.best.logits, *more.values()))

    def may_tie(self, expected: Step) -> bool:
        """Return whether a limit exists that makes it a tie: both sides have the logits that a tie needs."""
        own = self.at_hand(expected).ids
        return self.token in own and expected.token in own and expected.token in expected.best.ids


SubjectPart = Literal["inputs", "vision", "prefill", "step", "read", "write"]
"""Parts of an answer, named after the methods that return them; ``read`` also covers ``text_of``."""


class KvSize(NamedTuple):
    """Size of a key-value cache."""

    layers: int
    bytes_per_token: int
    """Bytes of the keys and values of one position in all layers."""


@dataclass(frozen=True, eq=False)
class SubjectResult:
    """Answer to one case; a field above the subject's level, or lost to its error, is None or empty."""

    case_id: str
    level: Level
    text: str
    """Text with its markup, as ``read`` returned it. If the subject has a ``text_of`` and its tokens equal the
    reference's to the end, it is the text of those tokens."""
    spans: tuple[SpanSeen, ...]
    """Spans that the contract finds in ``text``."""
    mmd: str | None = None
    """Content of ``result.mmd``, if the subject writes files."""
    artefacts: Mapping[str, Artefact] | None = None
    """The files written, of a subject that writes them."""
    inputs: InputsDigest | None = None
    seams: Mapping[str, Seam] = field(default_factory=dict)
    """Seams as in an observation, in the stages' order. A subject with named modules adds ``STAGE.page/3`` (the output
    of that block) and ``prefill/3``."""
    unplaced: Mapping[str, str] = field(default_factory=dict)
    """Why seams of blocks cannot be compared, by name: the calls do not tell the place of their values."""
    promised: frozenset[str] = frozenset()
    """Names of the seams that the subject says it returns."""
    prefill_best: Best | None = None
    forced: tuple[ForcedStep, ...] | None = None
    """Steps of the subject along the reference's tokens."""
    continued: Output | None = None
    """Output of the subject's own steps from its first choice that differs, if all that differ may be ties. The
    checkpoint's tokenizer and the vendor's rules turn the tokens into it."""
    left_at: int | None = None
    """Step at which ``read`` left the subject's own choices by a tie; ``continued`` is then what it read."""
    retraced: str = ""
    """Extent, in words, to which the subject's own steps lead to ``text``, if they do not lead to its end."""
    ends: bool = True
    """Whether the subject's policy ends the output where the reference's tokens end, as far as it reports this."""
    text_of_tokens: str | None = None
    """Text that ``text_of`` returns for those tokens; set only if ``reread`` and if the subject has a ``text_of``."""
    reread: bool = False
    """Whether the subject's tokens equal the reference's to the end, although ``text`` is what ``read`` returned."""
    first_token_ms: float | None = None
    """Time from the request to the first text of ``read``, if the subject streams and reports it."""
    ended_by: str = ""
    """Why the last ``read`` ended, if the subject reports it: ``length`` is a limit of tokens."""
    input_tensors: Mapping[str, Tensor] | None = None
    """The inputs themselves, on their device, for callers that compute with them; read-only."""
    vision_tensors: Mapping[str, Tensor] | None = None
    """The outputs of the subject's vision, on their device; read-only."""
    rounding: Mapping[str, Rounding] = field(default_factory=dict)
    """Rounding of each analysed stage, if the subject computes in fewer bits than float32."""
    kv: KvSize | None = None
    """Size of the cache after the prompt, if the subject exposes it."""
    fault: SubjectFaultError | None = None
    """The error that ended it."""
    lost: frozenset[SubjectPart] = frozenset()
    """The parts that ``fault`` prevented, or, without one, that the subject does not offer of this case; its steps up
    to there are kept."""
    not_offered: frozenset[str] = frozenset()
    """Names in ``inputs`` that are not the subject's own."""

    def whole(self) -> SubjectResult:
        """Return the answer, or raise the error that cut it short."""
        if self.fault is not None:
            raise self.fault.with_traceback(None)
        return self


class Reading(NamedTuple):
    """Answer of one reading, if a page is read several times."""

    answer: SubjectResult
    """Complete for the first reading; later ones take all but the text, and the inputs if offered, from the first."""
    after: str
    """The case that the same process read before this one; empty if none."""
    place: int
    """Number of this reading in its process, counted from 1."""
