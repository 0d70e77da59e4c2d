"""Words of a factor by which the scores of attention are multiplied."""

import math

KNOWN = {
    "ln 2, as in a softmax of base 2": math.log(2),
    "1 / ln 2, as if scores were made for a softmax of base 2": 1 / math.log(2),
}
"""Factors that have a name."""
NEAR = 2e-3
"""Relative difference from a factor up to which a measured one has its name."""


def factor_of_scores(factor: float, width: int) -> str:
    """Say by which number scores are multiplied, with its name if it has one; ``width`` is that of a head."""
    roots = {
        f"the root of a head's {width} channels, as if scores were not divided by it": math.sqrt(width),
        f"1 over the root of a head's {width} channels, as if scores were divided by it twice": 1 / math.sqrt(width),
    }
    known = [words for words, number in (KNOWN | roots).items() if abs(factor / number - 1) < NEAR]
    return f"the scores are multiplied by {factor:.3g}{f' ({known[0]})' if known else ''}"
