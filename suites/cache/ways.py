"""Comparisons of a subject with itself: two ways of one computation, and texts read in two ways."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_dsocr.compare.readings import ALIKE, EITHER, STATE
from pytest_dsocr.compare.verdict import Comparison, Reason, Symptom, Verdict, as_expected, not_compared

from .walk import apart, cache_apart

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_dsocr.compare.tolerances import Tolerances
    from pytest_dsocr.contract.prompt import TextTokenizer
    from pytest_dsocr.records.case import Case
    from pytest_dsocr.records.config import Config
    from pytest_dsocr.subjects.checked import CheckedSubject
    from pytest_dsocr.subjects.kv_probe import CacheKind
    from pytest_dsocr.subjects.protocol import DecodeView
    from pytest_dsocr.subjects.retrace import Retraced

    from .scale import RoundingScale

FACTOR = 3.0
"""Largest error between two ways of a correct subject, in errors of the vendor's arithmetic.

Measured on an H200 in bf16, on ``dev-3`` with ``mini`` and two full-size checkpoints of random weights. Eager, SDPA,
the fast engine and norms in float32 have up to 1.3 in logits, 0.9 in the cache's prompt and 1.9 in its later tokens.
"""
REPEAT = "--dsocr-repeat"
STRIPPED = 2
"""Most tokens of white space at the ends of an output, which its text lacks."""
LEAST_REWRITTEN = 3
"""Smallest number of places with one edit that show a text which is written otherwise, and no other tokens."""
NEITHER = "the engine's steps lead to neither of the two texts, so rounding may explain it"


@dataclass(frozen=True, eq=False)
class Ways:
    """Limits of two ways: in float32 the usual ones, in fewer bits :data:`FACTOR` times the vendor's rounding.

    Args:
        limits: the usual ones of the subject's dtype, with those of the run's options.
        given: names of the limits that the run's options set; these replace measured ones.
        scale: the vendor's rounding; None in float32.
        wobble: relative error between the same computation done twice; it counts up to the vendor's rounding.
    """

    limits: Tolerances
    given: frozenset[str]
    scale: RoundingScale | None
    wobble: float = 0.0

    @classmethod
    def of(cls, config: Config, subject: Any, scale: RoundingScale | None, wobble: float) -> Ways:
        """Return the limits of a run's subject."""
        from pytest_dsocr.run.limits import own_limits

        limits = own_limits(config, subject)
        return cls(limits, frozenset(config.tolerances), in_dtype(scale, limits), wobble)

    def logits(self, what: str, found: Tensor, expected: Tensor) -> Comparison:
        """Compare logits ``[V]`` of two ways."""
        return self._compared(what, found, expected, "logits", lambda scale: scale.logits)

    def steps(self, found: Sequence[Tensor], expected: Sequence[Tensor]) -> Iterator[Comparison]:
        """Compare the logits of each step of two ways."""
        for step, (one, other) in enumerate(zip(found, expected, strict=True), 1):
            yield self.logits(f"logits/step {step}", one, other)

    def vision(self, what: str, found: Tensor, expected: Tensor, seam: str) -> Comparison:
        """Compare features of two ways, whose rounding is that of the tensor ``seam``."""
        return self._compared(what, found, expected, "seam", lambda scale: scale.vision(seam))

    def cache(self, kind: CacheKind, layer: int, found: DecodeView, expected: DecodeView, prompt: int) -> Comparison:
        """Compare a layer's keys or values of two ways, after a prompt of ``prompt`` tokens and some more."""
        one, other = (getattr(state.cache, kind)(layer) for state in (found, expected))
        error = cache_apart(found, expected, kind, layer, prompt) if one.shape == other.shape else math.inf
        what = f"cache/{kind} of layer {layer}"
        return self._compared(what, one, other, "seam", lambda scale: scale.cache(kind, layer), error)

    def is_seen(self, found: Tensor, plain: Tensor) -> bool:
        """Return whether logits differ by more than a repetition of the same step."""
        return not (found.equal(plain) or apart(found, plain) <= FACTOR * self.wobble)

    def _compared(
        self,
        what: str,
        found: Tensor,
        expected: Tensor,
        limit: str,
        unit: Callable[[RoundingScale], float],
        error: float | None = None,
    ) -> Comparison:
        if found.shape != expected.shape:
            measured = f"shape {list(found.shape)}; expected {list(expected.shape)}"
            return Comparison(what, Verdict.WRONG, measured)
        if not expected.numel() or bool((expected == expected.flatten()[0]).all()):
            measured = f"all values of {list(expected.shape)} are equal, which shows nothing; return the computed ones"
            return not_compared(what, Reason.TELLS_NOTHING, measured)
        error = apart(found, expected) if error is None else error
        if error == 0.0:
            return Comparison(what, Verdict.MATCH, f"every value of {list(found.shape)}", error)
        allowed, why = self._allowed(limit, unit)
        verdict = Verdict.DRIFT if error <= allowed else Verdict.WRONG
        return Comparison(what, verdict, f"relative error {error:.1e} (allowed {allowed:.1e}{why})", error)

    def _allowed(self, limit: str, unit: Callable[[RoundingScale], float]) -> tuple[float, str]:
        if self.scale is None or limit in self.given:
            return getattr(self.limits, limit), ""
        measured = unit(self.scale)
        wobble = min(self.wobble, measured)  # more is no rounding, but a fault
        more = " and the subject's from run to run" if wobble else ""
        return FACTOR * (measured + wobble), f", {FACTOR:g} times the vendor's rounding here{more}"


def of_state(found: Comparison, first: str, texts: Sequence[str]) -> Comparison:
    """Return a wrong comparison as one of state: a page read ``first``, and again with other ``texts``."""
    from pytest_dsocr.compare.text import compare_text

    is_alike = len(texts) >= ALIKE and len({*texts}) == 1
    often = f", {len(texts)} times the same one" if is_alike else ""
    check = f"check: whether it differs {STATE if is_alike else f'{EITHER} ({REPEAT})'}"
    compared = compare_text(texts[0], first, 0.0)
    measured = f"{Symptom.STATE.sentence}{often}; {compared.measured}"
    return replace(found, measured=measured, details=(check,), signs=compared.signs | {Symptom.STATE})


def in_dtype(scale: RoundingScale | None, limits: Tolerances) -> RoundingScale | None:
    """Return the vendor's rounding if it is of the subject's narrow dtype, which may not be the run's."""
    from pytest_dsocr.records.subject_result import ROUNDED_DTYPES

    is_own = scale is not None and scale.rounder.setup.dtype == limits.dtype
    return scale if is_own and limits.dtype in ROUNDED_DTYPES else None


@dataclass(frozen=True, eq=False)
class TextWays:
    """Texts of one case that a subject read in two ways.

    Args:
        asked: the subject; its own steps follow a text that differs.
        follower: follows instead if the subject has no steps: the engine.
        tokenizer: the checkpoint's.
        limits: for two computations of the subject.
        scale: the vendor's rounding, which bounds a tie; None in float32.
    """

    asked: CheckedSubject
    follower: Callable[[], CheckedSubject]
    tokenizer: TextTokenizer
    limits: Tolerances
    scale: RoundingScale | None

    def retraced(self, case: Case, text: str) -> Retraced:
        """Follow a text of ``case`` by steps, each of which takes the best token or one that ties with it."""
        from pytest_dsocr.models.spec import FUSION
        from pytest_dsocr.subjects.retrace import Retracer

        own = self.asked if self._has_steps else self.follower()
        inputs = own.inputs(case, partial=True)
        features = own.vision(inputs, partial=True).get(FUSION)
        return Retracer.of(own, case, inputs, features, self.tokenizer, self._tied).along(text)

    def compare(self, what: str, case: Case, text: str, expected: str, why: str) -> Comparison:
        """Compare a text with that of another way, which ``why`` names: TIE-FLIP if steps lead to it but for ties."""
        from pytest_dsocr.compare.text import compare_text

        if text == expected:
            return as_expected(what, text, expected, why)
        is_stopped = len(self.tokenizer.encode(text)) + STRIPPED >= case.max_new_tokens
        compared, retraced = compare_text(text, expected, 0.0, is_stopped=is_stopped), self.retraced(case, text)
        verdict = Verdict.TIE_FLIP if retraced.is_whole else Verdict.WRONG
        measured = f"{compared.measured}; {self._led(retraced, text, expected)}"
        if verdict is Verdict.WRONG and not self._can_judge(case, expected):
            verdict, measured = Verdict.DRIFT, f"{compared.measured}; {NEITHER}"
        return replace(compared, what=what, verdict=verdict, measured=measured, details=(why, *compared.details))

    def steady(self, found: Comparison, case: Case, first: str) -> Comparison:
        """Return a wrong comparison as one of state if ``case``, which was read ``first``, now reads otherwise."""
        if found.verdict is not Verdict.WRONG or (again := self.asked.read(case)) == first:
            return found
        return of_state(found, first, [again])

    def _led(self, retraced: Retraced, text: str, expected: str) -> str:
        """Return how far steps lead along a text, or the rewriting by which it differs if that shows in its tokens."""
        from pytest_dsocr.contract.markup import clean_output
        from pytest_dsocr.describe.simplest import simplest
        from pytest_dsocr.describe.texts import CHANGES, of_texts

        if retraced.is_whole:
            return retraced.words
        if expected.startswith(text) and clean_output(self.tokenizer.decode(retraced.tokens)) == text:
            return f"the subject's own steps lead to it, and go on after step {len(retraced.tokens)}"
        relation = simplest(of_texts(text, expected))
        is_rewriting = relation and (relation.kind in CHANGES or relation.cases >= LEAST_REWRITTEN)
        own = retraced.words if self._has_steps else f"the engine's steps leave it at step {len(retraced.tokens)}"
        return relation.text if relation and relation.explains and is_rewriting else own

    @property
    def _has_steps(self) -> bool:
        from pytest_dsocr.records.config import Level

        return self.asked.level >= Level.STAGES

    def _can_judge(self, case: Case, expected: str) -> bool:
        """Return whether steps lead to the other text: those of the engine may not, if the subject rounds otherwise."""
        is_exact = in_dtype(self.scale, self.limits) is None
        return self._has_steps or is_exact or self.retraced(case, expected).is_whole

    @property
    def _tied(self) -> Tolerances:
        """Limits by which two logits tie; no less than the vendor's largest error of a logit."""
        scale = in_dtype(self.scale, self.limits)
        return replace(self.limits, ties=max(self.limits.ties, math.ceil(scale.ulp))) if scale else self.limits
