"""Types of a comparison's result; code draws conclusions from these, never from messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from pytest_dsocr.base.exact_types import to_builtin
from pytest_dsocr.base.words import shown
from pytest_dsocr.records.names import ComparisonName, TensorName

if TYPE_CHECKING:
    from pytest_dsocr.compare.diff import DiffLine


class Reason(StrEnum):
    """Why something was not compared."""

    NEITHER = "neither side has any"
    NOT_OFFERED = "not offered"
    """The subject does not offer this."""
    NOT_GIVEN = "promised by the subject and not given"
    """The subject offers this, and did not return it."""
    NOT_IN_REFERENCE = "not in the reference"
    TELLS_NOTHING = "tells nothing"
    """The result would be the same with and without a mistake."""
    INCOMPLETE = "incomplete on one side"
    LOST = "lost to an error"
    NOT_BY_BLOCK = "not comparable by block"
    """The subject calls its modules in a way that leaves the place of their values open."""


class Symptom(StrEnum):
    """Evidence that distinguishes one cause of a difference from another."""

    sentence: str
    """Sentence for the symptom; empty if it needs figures."""

    def __new__(cls, value: str, sentence: str = "") -> Symptom:
        """Create a member from its value and sentence."""
        sign = str.__new__(cls, value)
        sign._value_, sign.sentence = value, sentence
        return sign

    # the prompt's ids, the mask, the grid and the pixels
    NO_BOS = "no BOS", "the BOS in front is missing"
    TWO_BOS = "two BOS", "there is one BOS too many in front"
    IDS_REORDERED = "ids reordered", "the same ids in another order"
    BEHIND_IMAGE = "behind the image", "they differ only after the image"
    MASK_TOO_EARLY = "mask too early", "one place too early"
    ONE_TOKEN_FEWER = "one token fewer", "one image token fewer"
    OTHER_COUNT = "other count", "another number of image tokens"
    GRID_EXCHANGED = "grid exchanged", "columns and rows exchanged"
    NO_CROPS = "no crops", "no crops where the reference has some"
    CROPS = "crops", "crops where the reference has none"
    UP_TO_SIX = "up to six crops", "no more than 6 crops where the reference has up to 9"
    VIEWS_REORDERED = "views reordered", "the same views in another order"
    CHANNELS_REORDERED = "channels reordered", "the channels in the opposite order"
    WHOLE_LEVELS = "whole levels", "only the values -1, 0 and 1"
    ROUNDED = "rounded", "no pixel is more than one level of 255 away"
    """No pixel is as much as a level away."""
    BARS_ALONE = "bars alone", "the bars around the page differ, the page does not"
    OTHER_BARS = "other bars", "the bars around the page have another width than the reference's"
    # tensors
    OTHER_SHAPE = "other shape"
    """Another shape; for pixels also another dtype."""
    NOT_FINITE = "not finite", "it has NaN or infinity, the reference does not"
    SHUFFLED = "shuffled", "mean and norm equal the reference's: the same values, in other places"
    LATER_ROWS = "later rows", "its first rows are right, the later ones are not"
    SUSPICIOUS = "suspicious", "larger than any error of a correct implementation measured on CPUs from SSE4 to AVX-512"
    """Inside the tolerance, and larger than what correct implementations were measured to have."""
    SCALED = "scaled", "most of the difference is one factor on all values"
    # steps
    FROM_PREFILL = "from prefill"
    """The first logits out of tolerance are those of prefill."""
    FROM_FIRST_STEP = "from the first step"
    """The first logits out of tolerance are those of the step after prefill."""
    STANDS_STILL = "stands still", "every step gives the same logits as the first"
    SAID_FORBIDDEN = "said what is forbidden", "the subject chose its best token, which the reference's rule forbids"
    NOT_ITS_BEST = "not its best", "the subject did not choose its best token, and the reference did"
    NO_END = "no end", "the subject's policy stops at a token other than EOS, or only at the limit of tokens"
    # text
    EMPTINESS = "emptiness"
    TRUNCATION = "truncation"
    ENDS_INSIDE = "ends inside a span"
    """And is as long as the reference, or longer."""
    GOES_ON = "goes on"
    LOST_START = "lost start"
    START_MISSING = "the start is missing"
    """And the rest is nearly right, as for the next two."""
    PART_MISSING = "a part is missing"
    END_MISSING = "the end is missing"
    REPETITION = "repetition"
    BYTE_MARKS = "byte marks"
    BROKEN_CHARACTERS = "broken characters"
    MARKUP = "markup"
    SPACES = "spaces"
    NUMBERS = "numbers"
    ECHO = "echo"
    UNRELATED = "unrelated"
    NEVER_READ = "a mark never occurs"
    LENGTH = "length"
    ELSEWHERE = "elsewhere"
    HABIT = "each time"
    """Characters are read wrongly in the same way nearly each time."""
    STATE = "state", "the same page, read again after another one, gives another result"
    # boxes and files
    BOXES_MISSING = "boxes missing", "every box that is there is right, and others are missing"
    SHARED_MOVE = "shared move", "nearly all boxes moved by the same shift and scale, which fewer bits do not cause"
    OTHER_FILES = "other files", "files other than figures are missing or surplus"


class Verdict(StrEnum):
    """Verdict of a comparison; NOT-COMPARED alone is not a pass, see :attr:`Comparison.passes`."""

    MATCH = "MATCH"
    """Equal."""
    DRIFT = "DRIFT"
    """Different, inside the tolerance."""
    TIE_FLIP = "TIE-FLIP"
    """Another token where the reference's own best two were within rounding, or a consequence of such a choice."""
    WRONG = "WRONG"
    """Outside the tolerance."""
    NOT_COMPARED = "NOT-COMPARED"
    """Nothing to compare on one of the sides."""


LEFT_OUT = frozenset((Reason.NOT_OFFERED, Reason.NOT_BY_BLOCK))
"""Reasons that the subject's level and its calls give."""
PASSING = LEFT_OUT | {Reason.NEITHER}
"""Reasons that may leave something uncompared: neither side has it, or the subject does not offer it."""
REFERENCE = "the reference"
"""Name of the other side, unless the caller gives another."""
AXES_OF_ONE = "only axes of size 1 differ"
"""Words for a shape whose other axes are as expected."""
SEVERITY = (Verdict.NOT_COMPARED, Verdict.MATCH, Verdict.DRIFT, Verdict.TIE_FLIP, Verdict.WRONG)


@dataclass(frozen=True)
class Comparison:
    """The comparison of one thing of a case."""

    what: str
    """``input_ids``, ``STAGE.page``, ``tokens``, ``result.mmd`` and so on."""
    verdict: Verdict
    measured: str
    """Phrase that states what was found and what is allowed."""
    error: float | None = None
    """The relative error, of tensors."""
    details: tuple[str, ...] = ()
    """The first places where the two differ, a line each."""
    signs: frozenset[Symptom] = frozenset()
    """Evidence of the cause."""
    reason: Reason | None = None
    """Reason that nothing was compared; None if the sides were compared."""
    diff: tuple[DiffLine, ...] = ()
    """The first places where two texts differ."""
    lost_to: Exception | None = field(default=None, compare=False, repr=False)
    """Error that prevented the comparison; the caller raises it."""
    allowed: float | None = field(default=None, compare=False)
    """The largest error that passes, of tensors."""
    along: str = field(default="", compare=False, repr=False)
    """A digit of :mod:`pytest_dsocr.describe.error_digits` for the error of each decoding step."""
    share: float | None = field(default=None, compare=False)
    """Edit distance of a text over the reference's length."""

    @property
    def stage(self) -> str:
        """Name of the stage, such as ``STAGE`` for ``STAGE.page/3``; for other names their first word."""
        return self.name.stage

    @property
    def name(self) -> ComparisonName:
        """Identity of the comparison."""
        return ComparisonName.parse(self.what)

    @property
    def tensor(self) -> TensorName:
        """Name of the compared tensor."""
        return TensorName.parse(self.what)

    @property
    def passes(self) -> bool:
        """Whether a run may pass with it: nothing is WRONG, and nothing that was promised was left uncompared."""
        if self.verdict is Verdict.NOT_COMPARED:
            return self.reason in PASSING
        return self.verdict is not Verdict.WRONG


def equal(what: str, actual: object, expected: object, measured: str, other: str = REFERENCE) -> Comparison:
    """Compare two exact values; ``measured`` describes equal ones, and ``other`` names the other side."""
    actual, expected = to_builtin(actual), to_builtin(expected)
    if actual == expected:
        return Comparison(what, Verdict.MATCH, measured)
    return Comparison(what, Verdict.WRONG, f"{shown(actual)}; {other} has {shown(expected)}")


def not_compared(what: str, reason: Reason, measured: str = "") -> Comparison:
    """Return a comparison that was not made; ``measured`` may explain the reason."""
    return Comparison(what, Verdict.NOT_COMPARED, measured or str(reason), reason=reason)


def lost(what: str, error: Exception) -> Comparison:
    """Return a comparison that was not made because a side raised an error."""
    measured = f"{Reason.LOST}: {shown(str(error), 120)}"
    return Comparison(what, Verdict.NOT_COMPARED, measured, reason=Reason.LOST, lost_to=error)


def worst(comparisons: Iterable[Comparison]) -> Verdict:
    """Return the gravest verdict; NOT-COMPARED if nothing was compared."""
    verdicts = {comparison.verdict for comparison in comparisons}
    return max(verdicts, key=SEVERITY.index, default=Verdict.NOT_COMPARED)


def as_expected(what: str, found: object, expected: object, why: str) -> Comparison:
    """Compare a finding with its expectation; ``why`` is a phrase that justifies the expectation."""
    found, expected = to_builtin(found), to_builtin(expected)
    if found == expected:
        return Comparison(what, Verdict.MATCH, f"{shown(found)}, {why}")
    return Comparison(what, Verdict.WRONG, f"{shown(found)}; expected {shown(expected)}, {why}")
