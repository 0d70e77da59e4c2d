"""The subject's steps after a page, two ways to the same numbers, and what memory both take on a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    from pytest_dsocr.subjects.kv_probe import KvProbe
    from pytest_dsocr.subjects.protocol import DecodeView


STEPS = 8


@dataclass(frozen=True, eq=False)
class Walk:
    """One page, from the prompt on.

    What tests share is made before the first is given it: a test may count calls or bytes, and what was made while it
    counts would be counted, in whichever test comes first.
    """

    subject: CheckedSubject
    """The subject, whose every answer is checked to be one."""
    inputs: Mapping[str, Tensor]
    """The subject's inputs of the page; never handed to it but as copies."""
    features: Tensor
    """The page's features, ``vision_fusion``; never handed to it but as a copy."""
    tokens: tuple[int, ...]
    """The subject's own first choices, without any rule of repetition: :data:`STEPS`, and as many as a ring holds."""
    family: ModelSpec

    @classmethod
    def along(cls, subject: Any, page: Path, preset: str = "", *, family: ModelSpec) -> Walk:
        """Ask ``subject`` for a page's inputs, features and first choices.

        Args:
            subject: the implementation under test.
            page: an image.
            preset: its sizes; the quickest where they do not matter.
            family: of the checkpoint.

        Raises:
            DsocrError: where it does not give them.
        """
        import torch

        from pytest_dsocr.subjects.checked import CheckedSubject

        checked = CheckedSubject(subject)
        with torch.no_grad():
            case = make_case(page, "markdown", preset or family.quickest, family=family)
            inputs = _copied(checked.inputs(case, partial=True))
            if (features := checked.vision(_copied(inputs)).get(FUSION)) is None:
                raise DsocrError(
                    f"the subject's vision gave nothing of {page.name} in {case.preset.name}; "
                    "if its pixels sum to zero there, as the vendor's gate has it, put another page first"
                )
            walk = cls(checked, inputs, features.clone(), (), family)
            return replace(walk, tokens=walk._choices())

    @property
    def first(self) -> tuple[int, ...]:
        """The first :data:`STEPS` choices, which a prompt may end in as well: no ring is full by then."""
        return self.tokens[:STEPS]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return self.inputs["input_ids"].shape[1]

    def held(self, steps: int) -> int:
        """Return the positions in the cache after so many steps, as the family keeps them."""
        return self.family.cache.length(self.prompt_tokens, steps)

    def over(self, step: int) -> list[int]:
        """Return the position that a step is to write over, if any."""
        is_full = self.held(step) == self.held(step - 1)
        return [self.family.cache.slot(self.prompt_tokens, step - 1)] if is_full else []

    def copies(self, more: Sequence[int] = ()) -> dict[str, Tensor]:
        """Return the inputs anew, with ``more`` tokens of text behind the prompt."""
        import torch

        given = _copied(self.inputs)
        if more:
            ids, mask = given["input_ids"], given["images_seq_mask"]
            given["input_ids"] = torch.cat([ids, ids.new_tensor([list(more)])], dim=1)
            given["images_seq_mask"] = torch.cat([mask, mask.new_zeros(1, len(more))], dim=1)
        return given

    def text_only(self, more: Sequence[int] = ()) -> dict[str, Tensor]:
        """Return the inputs anew, with a prompt of BOS and ``more`` tokens, and none of the image's."""
        given = self.copies()
        given["input_ids"] = given["input_ids"].new_tensor([[int(given["input_ids"][0, 0]), *more]])
        given["images_seq_mask"] = given["images_seq_mask"].new_zeros(1, 1 + len(more))
        return given

    def start(self, more: Sequence[int] = ()) -> tuple[DecodeView, Tensor]:
        """Prefill the prompt and ``more`` tokens in one call; give the state and its logits ``[V]``."""
        return self.subject.prefill(self.copies(more), self.features.clone())

    def steps(self, state: DecodeView, tokens: Sequence[int]) -> list[Tensor]:
        """Feed tokens one by one; give the logits after each."""
        return [self.subject.step(state, token) for token in tokens]

    def _choices(self) -> tuple[int, ...]:
        state, logits = self.start()
        chosen = [int(logits.argmax())]
        while len(chosen) < STEPS + (self.family.cache.ring or 0):
            chosen.append(int(self.subject.step(state, chosen[-1]).argmax()))
        return tuple(chosen)


def _copied(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in inputs.items()}


def compare_lengths(probe: KvProbe, expected: int, when: str, why: str) -> list[Comparison]:
    """Compare what a cache says of itself, and where its contents are shown the length of all keys and values."""
    what = f"cache/positions {when}"
    found = as_expected(f"cache/length {when}", probe.state.cache.length, expected, why)
    try:
        lengths = Counter(length for pair in probe.lengths for length in pair)
    except NotOfferedError:
        return [found, not_compared(what, Reason.NOT_OFFERED)]
    held = next(iter(lengths)) if len(lengths) == 1 else f"{dict(lengths)}, by tensors that are so long"
    return [found, as_expected(what, held, expected, f"{why}, in keys and values of every layer")]


def compare_ways(what: str, found: Tensor, expected: Tensor, allowed: float) -> Comparison:
    """Compare tensors by the largest difference over the largest value, of finite ones; where all are alike, nothing.

    Args:
        what: what they are of.
        found: by one way.
        expected: by the other, which is taken for right.
        allowed: the relative error that is DRIFT.
    """
    if found.shape != expected.shape:
        measured = f"shape {list(found.shape)}; expected {list(expected.shape)}"
        return Comparison(what, Verdict.WRONG, measured)
    if not expected.numel() or bool((expected == expected.flatten()[0]).all()):
        measured = f"all alike in {list(expected.shape)}, which tells nothing; give what was computed"
        return not_compared(what, Reason.TELLS_NOTHING, measured)
    apart = (found.float() - expected.float()).abs()
    error = float(apart.max() / expected.float().abs().max())
    verdict = Verdict.MATCH if error == 0.0 else Verdict.DRIFT if error <= allowed else Verdict.WRONG
    return Comparison(what, verdict, f"relative error at most {error:.1e} (allowed {allowed:.0e})", error)


MB = 1_000_000
T = TypeVar("T")


@dataclass(frozen=True)
class Peak:
    """Bytes allocated by torch on one GPU."""

    before: int
    most: int

    @classmethod
    def of(cls, work: Callable[[], T], device: str) -> tuple[T, Peak]:
        """Do ``work``; return its result, and the peak on ``device``, whichever is current."""
        import torch

        gpu = torch.device(device)
        torch.cuda.reset_peak_memory_stats(gpu)
        before = torch.cuda.memory_allocated(gpu)
        done = work()
        return done, cls(before, torch.cuda.max_memory_allocated(gpu))


def compare_peaks(prefill: Peak, decode: Peak, device: str) -> Comparison:
    """Compare decode's with the one from vision to the prompt's end, where that shows that the subject was there."""
    what = "decode/peak memory"
    if prefill.most <= prefill.before:
        why = f"torch allocated nothing on {device} in vision and prefill"
        return not_compared(what, Reason.TELLS_NOTHING, f"{why}; see that the subject computes there, and in torch")
    verdict = Verdict.MATCH if decode.most <= prefill.most else Verdict.WRONG
    message = f"{decode.most / MB:.1f} MB at most in decode, {prefill.most / MB:.1f} MB in vision and prefill (allowed)"
    return Comparison(what, verdict, f"{message}, on {device}")
