"""Work of both sides, and how it is made the same where their texts part."""

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_dsocr.timing.counts import text_change
from pytest_dsocr.timing.side import TimedSide, ask_all


@dataclass(frozen=True)
class Work:
    """Text and tokens of the page on both sides, and whether both are driven along A's tokens."""

    apart: str = ""
    """Difference between the texts; empty if they are equal."""
    tokens: int = 0
    """Tokens of the page; 0 if no side has stages."""
    along: Sequence[int] = ()
    """A's tokens, if both sides are driven along them."""

    def drive(self, both: Sequence[TimedSide]) -> None:
        """Drive both sides along A's tokens, if they would go apart."""
        if self.along:
            ask_all(both, "drive", [{"tokens": self.along, "is_page_along": bool(self.apart)}] * len(both))


def work_of(both: Sequence[TimedSide]) -> Work:
    """Have both sides read the page once, and compare their texts and tokens; only sides with stages can be driven."""
    a, b = ask_all(both, "work")
    apart = text_change(a["text"], b["text"])
    is_driven = a["tokens"] and b["tokens"] and (apart or a["tokens"] != b["tokens"])
    return Work(apart, max(len(a["tokens"]), len(b["tokens"])), a["tokens"] if is_driven else ())
