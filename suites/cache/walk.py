"""Steps of a subject after a page, and comparisons of cache lengths, tensors and peaks of memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.compare.verdict import Comparison, Reason, Verdict, as_expected, not_compared
from pytest_dsocr.models.spec import FUSION, ModelSpec
from pytest_dsocr.records.case import make_case
from pytest_dsocr.subjects.protocol import NotOfferedError

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_dsocr.subjects.checked import CheckedSubject
    from pytest_dsocr.subjects.kv_probe import CacheKind, KvProbe
    from pytest_dsocr.subjects.protocol import DecodeView


STEPS = 8


@dataclass(frozen=True, eq=False)
class Walk:
    """Page with its inputs, features and next tokens.

    All of these are computed before the first test runs, as a test may count calls or bytes.
    """

    subject: CheckedSubject
    """The subject, with every result checked for its type and shape."""
    inputs: Mapping[str, Tensor]
    """Inputs that the subject made from the page; the subject receives only copies."""
    features: Tensor
    """Features of the page, ``vision_fusion``; the subject receives only copies."""
    tokens: tuple[int, ...]
    """Best tokens without a rule for repetition: :data:`STEPS`, and as many more as a ring holds."""
    family: ModelSpec
    logits: Sequence[Tensor] = ()
    """Logits after each of the first tokens, as far as the choice of the others needed them."""

    @classmethod
    def along(cls, subject: Any, page: Path, preset: str = "", *, family: ModelSpec) -> Walk:
        """Compute a page's inputs, features and next tokens with ``subject``.

        Args:
            subject: the implementation under test.
            page: an image.
            preset: sizes of the views; the quickest ones if empty.
            family: the checkpoint's model.

        Raises:
            DsocrError: if the subject returns no features.
        """
        import torch

        from pytest_dsocr.subjects.checked import CheckedSubject, copies

        checked = CheckedSubject(subject)
        with torch.no_grad():
            case = make_case(page, "markdown", preset or family.quickest, family=family)
            inputs = checked.inputs(case, partial=True)
            if (features := checked.vision(copies(inputs)).get(FUSION)) is None:
                raise DsocrError(
                    f"the subject's vision returned no features for {page.name} in {case.preset.name}; if the page's "
                    "pixels sum to zero, which the vendor's code takes for no image, put another page first"
                )
            walk = cls(checked, inputs, features.clone(), (), family)
            tokens, logits = walk._choices()
            return replace(walk, tokens=tokens, logits=logits)

    @cached_property
    def wobble(self) -> float:
        """Largest relative error between the logits of the same steps taken twice; 0 for a deterministic subject."""
        return max(map(apart, self.steps(self.start()[0], self.first), self.logits))

    @property
    def first(self) -> tuple[int, ...]:
        """The first :data:`STEPS` tokens, too few to fill a ring; a prompt may also end in them."""
        return self.tokens[:STEPS]

    @property
    def prompt_tokens(self) -> int:
        """Number of tokens in the prompt."""
        return self.inputs["input_ids"].shape[1]

    def held(self, steps: int) -> int:
        """Return the number of positions in the cache after ``steps``, by the model's rule."""
        return self.family.cache.length(self.prompt_tokens, steps)

    def over(self, step: int) -> list[int]:
        """Return the position that a step must overwrite, if any."""
        is_full = self.held(step) == self.held(step - 1)
        return [self.family.cache.slot(self.prompt_tokens, step - 1)] if is_full else []

    def copies(self, more: Sequence[int] = ()) -> dict[str, Tensor]:
        """Return a copy of the inputs with ``more`` tokens of text after the prompt."""
        import torch

        from pytest_dsocr.subjects.checked import copies

        given = copies(self.inputs)
        if more:
            ids, mask = given["input_ids"], given["images_seq_mask"]
            given["input_ids"] = torch.cat([ids, ids.new_tensor([list(more)])], dim=1)
            given["images_seq_mask"] = torch.cat([mask, mask.new_zeros(1, len(more))], dim=1)
        return given

    def text_only(self, more: Sequence[int] = ()) -> dict[str, Tensor]:
        """Return a copy of the inputs with a prompt of BOS and ``more`` tokens, and without image tokens."""
        given = self.copies()
        given["input_ids"] = given["input_ids"].new_tensor([[int(given["input_ids"][0, 0]), *more]])
        given["images_seq_mask"] = given["images_seq_mask"].new_zeros(1, 1 + len(more))
        return given

    def start(self, more: Sequence[int] = ()) -> tuple[DecodeView, Tensor]:
        """Prefill the prompt and ``more`` tokens in one call, and return the state and its logits ``[V]``."""
        return self.subject.prefill(self.copies(more), self.features.clone())

    def steps(self, state: DecodeView, tokens: Sequence[int]) -> list[Tensor]:
        """Feed tokens one by one, and return the logits after each."""
        return [self.subject.step(state, token) for token in tokens]

    def _choices(self) -> tuple[tuple[int, ...], list[Tensor]]:
        """Return the best tokens, and the logits after each of the first."""
        state, logits = self.start()
        after: list[Tensor] = []
        chosen = [int(logits.argmax())]
        while len(chosen) < STEPS + (self.family.cache.ring or 0):
            after.append(self.subject.step(state, chosen[-1]))
            chosen.append(int(after[-1].argmax()))
        return tuple(chosen), after[:STEPS]


def compare_lengths(probe: KvProbe, expected: int, when: str, why: str) -> list[Comparison]:
    """Compare the cache's own length, and the lengths of its keys and values if it shows them."""
    what = f"cache/positions {when}"
    found = as_expected(f"cache/length {when}", probe.state.cache.length, expected, why)
    try:
        lengths = Counter(length for pair in probe.lengths for length in pair)
    except NotOfferedError:
        return [found, not_compared(what, Reason.NOT_OFFERED)]
    held = next(iter(lengths)) if len(lengths) == 1 else f"{dict(lengths)}, as length: number of tensors"
    return [found, as_expected(what, held, expected, f"{why}, in keys and values of every layer")]


def apart(found: Tensor, expected: Tensor) -> float:
    """Return the norm of the difference over the norm of ``expected``; infinite with a NaN or an infinity."""
    difference, norm = float((found.double() - expected.double()).norm()), float(expected.double().norm())
    error = difference / norm if norm else (math.inf if difference else 0.0)
    return error if math.isfinite(error) else math.inf


def cache_apart(found: DecodeView, expected: DecodeView, kind: CacheKind, layer: int, prompt: int) -> float:
    """Return the error of a layer's keys or values ``[B, H, S, D]``: of the prompt or of the tokens after it.

    The larger one counts, because a few tokens would not show among many.
    """
    one, other = (getattr(state.cache, kind)(layer) for state in (found, expected))
    parts = ((one[:, :, :prompt], other[:, :, :prompt]), (one[:, :, prompt:], other[:, :, prompt:]))
    return max(apart(*pair) for pair in parts if pair[1].numel())


MB = 1_000_000
T = TypeVar("T")


@dataclass(frozen=True)
class Peak:
    """Bytes allocated by torch on one GPU: before some work, at most during it, and after it."""

    before: int
    most: int
    after: int

    @classmethod
    def of(cls, work: Callable[[], T], device: str) -> tuple[T, Peak]:
        """Do ``work``, and return its result and its peak on ``device``, even if another device is current."""
        import torch

        gpu = torch.device(device)
        torch.cuda.reset_peak_memory_stats(gpu)
        before = torch.cuda.memory_allocated(gpu)
        done = work()
        return done, cls(before, torch.cuda.max_memory_allocated(gpu), torch.cuda.memory_allocated(gpu))


def compare_peaks(prefill: Peak, decode: Peak, device: str) -> Comparison:
    """Compare the peak of decode with that of vision and prefill, if torch allocated anything there.

    Steps may keep what they add to the cache, on top of either peak. A step may also hold a second copy of all that is
    kept then, because a cache may be copied to grow. ``test_memory`` limits what each step keeps.
    """
    what = "decode/peak memory"
    if prefill.most <= prefill.before:
        why = f"torch allocated nothing on {device} in vision and prefill"
        return not_compared(what, Reason.TELLS_NOTHING, f"{why}; check that the subject computes there with torch")
    kept = max(decode.after, decode.before)
    of_prefill, copied = prefill.most + kept - decode.before, kept + kept - prefill.before
    limit, of = max((of_prefill, "in vision and prefill, and what is kept"), (copied, "with the cache copied"))
    verdict = Verdict.MATCH if decode.most <= limit else Verdict.WRONG
    message = f"{decode.most / MB:.1f} MB at most in decode, {limit / MB:.1f} MB {of} (allowed)"
    return Comparison(what, verdict, f"{message}, on {device}")
