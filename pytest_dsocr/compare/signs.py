"""What comparisons found, as types: conclusions are drawn from these, never from the words of a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Reason(StrEnum):
    """Why something was not compared."""

    NEITHER = "neither side has any"
    NOT_OFFERED = "not offered"
    """The subject does not say that it offers this."""
    NOT_GIVEN = "promised by the subject and not given"
    """The subject says that it offers this, and did not give it."""
    NOT_IN_REFERENCE = "not in the reference"
    TELLS_NOTHING = "tells nothing"
    """The result would be the same with and without a mistake."""
    INCOMPLETE = "incomplete on one side"
    LOST = "lost to an error"


class Sign(StrEnum):
    """What distinguishes one cause of a difference from another."""

    # the prompt's ids, the mask, the grid and the pixels
    NO_BOS = "no BOS"
    TWO_BOS = "two BOS"
    IDS_REORDERED = "ids reordered"
    BEHIND_IMAGE = "behind the image"
    MASK_TOO_EARLY = "mask too early"
    ONE_TOKEN_FEWER = "one token fewer"
    OTHER_COUNT = "other count"
    GRID_EXCHANGED = "grid exchanged"
    NO_CROPS = "no crops"
    CROPS = "crops"
    UP_TO_SIX = "up to six crops"
    VIEWS_REORDERED = "views reordered"
    CHANNELS_REORDERED = "channels reordered"
    WHOLE_LEVELS = "whole levels"
    ROUNDED = "rounded"
    """No pixel is as much as a level away."""
    BARS_ALONE = "bars alone"
    OTHER_BARS = "other bars"
    # tensors
    OTHER_SHAPE = "other shape"
    """Of pixels, another dtype as well."""
    NOT_FINITE = "not finite"
    SHUFFLED = "shuffled"
    LATER_ROWS = "later rows"
    SUSPICIOUS = "suspicious"
    """Inside the tolerance, and larger than what correct implementations were measured to have."""
    # steps
    FROM_PREFILL = "from prefill"
    """The first logits out of tolerance are those that prefill gave."""
    FROM_FIRST_STEP = "from the first step"
    """The first logits out of tolerance are those of the step after prefill."""
    STANDS_STILL = "stands still"
    SAID_FORBIDDEN = "said what is forbidden"
    NOT_ITS_BEST = "not its best"
    NO_END = "no end"
    # text
    EMPTINESS = "emptiness"
    TRUNCATION = "truncation"
    GOES_ON = "goes on"
    LOST_START = "lost start"
    REPETITION = "repetition"
    BYTE_MARKS = "byte marks"
    BROKEN_CHARACTERS = "broken characters"
    MARKUP = "markup"
    SPACES = "spaces"
    NUMBERS = "numbers"
    ECHO = "echo"
    UNRELATED = "unrelated"
    LENGTH = "length"
    ELSEWHERE = "elsewhere"


IN_WORDS: Mapping[Sign, str] = {
    Sign.NO_BOS: "the BOS in front is missing",
    Sign.TWO_BOS: "there is one BOS too many in front",
    Sign.IDS_REORDERED: "the same ids in another order",
    Sign.BEHIND_IMAGE: "they differ only after the image",
    Sign.MASK_TOO_EARLY: "one place too early",
    Sign.ONE_TOKEN_FEWER: "one image token fewer",
    Sign.OTHER_COUNT: "another number of image tokens",
    Sign.GRID_EXCHANGED: "columns and rows exchanged",
    Sign.NO_CROPS: "no crops where the reference has some",
    Sign.CROPS: "crops where the reference has none",
    Sign.UP_TO_SIX: "no more than 6 crops where the reference has up to 9",
    Sign.VIEWS_REORDERED: "the same views in another order",
    Sign.CHANNELS_REORDERED: "the channels in the opposite order",
    Sign.WHOLE_LEVELS: "no values but -1, 0 and 1",
    Sign.ROUNDED: "no pixel is more than one level of 255 away",
    Sign.BARS_ALONE: "the bars beside the page differ, and not the page",
    Sign.OTHER_BARS: "the bars beside the page are of another width than the reference's",
    Sign.NOT_FINITE: "it holds NaN or infinity, the reference does not",
    Sign.SHUFFLED: "mean and norm equal the reference's: the same values, in other places",
    Sign.SUSPICIOUS: "larger than any error of a correct implementation measured on CPUs from SSE4 to AVX-512",
    Sign.LATER_ROWS: "its first rows are right, those behind them are not",
    Sign.STANDS_STILL: "every step gives the same logits as the first",
    Sign.SAID_FORBIDDEN: "the subject chose its best token, which the reference's rule forbids",
    Sign.NOT_ITS_BEST: "the subject did not choose its best token, and the reference did",
    Sign.NO_END: "the subject's policy ends at another token than EOS, or only at the ceiling",
}
"""The sentence of a sign that needs no figures."""
