"""Whether the server chooses tokens, and ends, as it is asked to; and whether it says the same piece by piece."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_dsocr.compare.verdict import Comparison

from .asked import MANY, NO_TEXT, SOME, Asked, apart, judged, not_offered

SEEDS = (1, 2, 3)
LONG = 120
"""Tokens in which a page that repeats comes to the vendor's rule."""
WORD = re.compile(r"\w{3,}")


def temperature(asked: Asked) -> Comparison:
    """Compare answers of temperature 0 under several seeds, on a page whose tokens are not sure."""
    case = asked.odd["repeated"]
    if not (expected := asked(case, LONG)).text.strip():
        return not_offered("temperature", NO_TEXT)
    faults = [one for seed in SEEDS for one in apart(f"seed {seed}", asked(case, LONG, seed=seed), expected)]
    return judged("temperature", faults, f"{len(SEEDS) + 1} answers alike", "whether temperature 0 is taken for unset")


def ngram_rule(asked: Asked) -> Comparison:
    """Look for tokens that are repeated though the vendor's rule forbids it, on a page that repeats a word."""
    if not (size := asked.first.family.decoding.no_repeat_ngram_size):
        return not_offered("ngram_rule", "a rule, as the model has none unless it is asked for one")
    longest = longest_repeat(asked.tokenizer.encode(asked(asked.odd["repeated"], LONG).text))
    faults = [f"{longest} tokens stand twice; the vendor's rule forbids {size}"] if longest >= size else []
    check = f"how the server sets no_repeat_ngram_size {size}: OpenAI's API has no field for it"
    return judged("ngram_rule", faults, f"{longest} tokens stand twice, fewer than {size}", check)


def longest_repeat(ids: Sequence[int]) -> int:
    """Return how many tokens the longest run has that stands twice."""
    size = 0
    while len({tuple(ids[at : at + size + 1]) for at in range(len(ids) - size)}) < len(ids) - size:
        size += 1
    return size


def stop(asked: Asked) -> Comparison:
    """Compare an answer that is to stop in front of a word of its own, whole and piece by piece."""
    whole = asked(asked.first).text
    words = [found for found in WORD.finditer(whole) if found.start() > len(whole) // 3]
    word = next((one[0] for one in words if whole.index(one[0]) == one.start()), None)
    if word is None:
        return not_offered("stop", "a text with a word to stop at")
    faults = []
    for stream in (False, True):
        answer, how = asked(asked.first, stop=[word], stream=stream), "piece by piece" if stream else "whole"
        if answer.text.strip() != (expected := whole[: whole.index(word)].strip()):
            faults.append(f"{how}, {answer.text[-24:]!r} at its end; expected {expected[-24:]!r}, in front of {word!r}")
        elif answer.ended_by not in ("", "stop"):
            faults.append(f"{how}, ended by {answer.ended_by!r}, expected 'stop'")
    return judged("stop", faults, f"in front of {word!r}", "that the word is looked for across tokens, and left out")


def streaming(asked: Asked) -> Comparison:
    """Compare the pieces of answers with the answers, and what is said behind them."""
    faults = []
    for case, most in ((asked.first, SOME), *((one, MANY) for one in (*asked.short, asked.first))):
        expected = asked(case, most)
        actual = asked(case, most, stream=True, stream_options={"include_usage": True})
        faults += apart(f"{case.id} up to {most} tokens", actual, expected)
        for name in ("ended_by", "prompt_tokens", "completion_tokens"):
            one, other = getattr(actual, name), getattr(expected, name)
            if None not in (one, other) and one != other:
                faults.append(f"{case.id} up to {most} tokens, {name}: {one!r} piece by piece, {other!r} whole")
    right = f"{len(asked.short) + 2} answers alike"
    return judged("streaming", faults, right, "how pieces are cut, and the last one sent")
