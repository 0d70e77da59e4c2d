"""What torch had allocated on one GPU at most, while something was done there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.verdict import Comparison, Verdict, not_compared

MB = 1_000_000
T = TypeVar("T")


@dataclass(frozen=True)
class Peak:
    """Bytes allocated by torch on one GPU."""

    before: int
    most: int

    @classmethod
    def of(cls, work: Callable[[], T], device: str) -> tuple[T, Peak]:
        """Do ``work``; give what it gave, and the peak on ``device``, whichever is current."""
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
    told = f"{decode.most / MB:.1f} MB at most in decode, {prefill.most / MB:.1f} MB in vision and prefill (allowed)"
    return Comparison(what, verdict, f"{told}, on {device}")
