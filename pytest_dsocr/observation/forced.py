"""A subject's steps along the reference's tokens."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_dsocr.observation.observation import Best, NotFinite, Step

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

    def at_hand(self, theirs: Step) -> Best:
        """Give the subject's best tokens, and the subject's logits of the reference's best tokens."""
        more = {
            token: logit
            for token, logit in zip(theirs.best.ids, self.at_reference, strict=False)
            if token not in self.best.ids
        }
        return Best((*self.best.ids, *more), (*self.best.logits, *more.values()))

    def may_tie(self, theirs: Step) -> bool:
        """Say whether there are limits under which it is a tie: whether both sides have both logits at hand."""
        both = (self.token, theirs.token)
        return all(token in best.ids for best in (self.at_hand(theirs), theirs.best) for token in both)
