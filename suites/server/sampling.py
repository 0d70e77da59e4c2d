"""Checks of sampling options, ``stop`` and streaming."""

import re
from collections.abc import Sequence

from pytest_dsocr.compare.verdict import Comparison

from .asked import MANY, NO_TEXT, SOME, Asked, apart, judged, not_offered

SEEDS = (1, 2, 3)
LONG = 120
"""Number of tokens in which a repetitive page reaches the vendor's rule."""
WORD = re.compile(r"\w{3,}")


def temperature(asked: Asked) -> Comparison:
    """Compare answers at temperature 0 with several seeds, on a page with uncertain tokens."""
    case = asked.odd["repeated"]
    if not (expected := asked(case, LONG)).text.strip():
        return not_offered("temperature", NO_TEXT)
    faults = [one for seed in SEEDS for one in apart(f"seed {seed}", asked(case, LONG, seed=seed), expected)]
    return judged("temperature", faults, f"{len(SEEDS) + 1} equal answers", "whether temperature 0 is taken for unset")


def ngram_rule(asked: Asked) -> Comparison:
    """Look for a repetition that the vendor's rule forbids, on a page that repeats a word."""
    if not (size := asked.first.family.decoding.no_repeat_ngram_size):
        return not_offered("ngram_rule", "a rule; the model has none by default")
    longest = longest_repeat(asked.tokenizer.encode(asked(asked.odd["repeated"], LONG).text))
    faults = [f"{longest} tokens occur twice; the vendor's rule forbids {size}"] if longest >= size else []
    check = f"how the server sets no_repeat_ngram_size to {size}; OpenAI's API has no field for it"
    return judged("ngram_rule", faults, f"{longest} tokens occur twice, fewer than {size}", check)


def longest_repeat(ids: Sequence[int]) -> int:
    """Return the length of the longest run of tokens that occurs twice."""
    size = 0
    while len({tuple(ids[at : at + size + 1]) for at in range(len(ids) - size)}) < len(ids) - size:
        size += 1
    return size


def stop(asked: Asked) -> Comparison:
    """Compare answers that must stop before a given word, whole and streamed."""
    whole = asked(asked.first).text
    words = [found for found in WORD.finditer(whole) if found.start() > len(whole) // 3]
    word = next((one[0] for one in words if whole.index(one[0]) == one.start()), None)
    if word is None:
        return not_offered("stop", "a text with a word to stop before")
    faults = []
    for stream in (False, True):
        answer, how = asked(asked.first, stop=[word], stream=stream), "streamed" if stream else "whole"
        if answer.text.strip() != (expected := whole[: whole.index(word)].strip()):
            faults.append(f"{how}: ends in {answer.text[-24:]!r}; expected {expected[-24:]!r}, before {word!r}")
        elif answer.ended_by not in ("", "stop"):
            faults.append(f"{how}: finish_reason {answer.ended_by!r}; expected 'stop'")
    return judged("stop", faults, f"ends before {word!r}", "that a stop word is found across tokens, and left out")


def streaming(asked: Asked) -> Comparison:
    """Compare streamed answers with whole ones, with their counts and the reason why they end."""
    faults = []
    for case, most in ((asked.first, SOME), *((one, MANY) for one in (*asked.short, asked.first))):
        expected = asked(case, most)
        actual = asked(case, most, stream=True, stream_options={"include_usage": True})
        faults += apart(f"{case.id} up to {most} tokens", actual, expected)
        for name in ("ended_by", "prompt_tokens", "completion_tokens"):
            one, other = getattr(actual, name), getattr(expected, name)
            if None not in (one, other) and one != other:
                faults.append(f"{case.id} up to {most} tokens, {name}: {one!r} streamed, {other!r} whole")
    right = f"{len(asked.short) + 2} equal answers"
    return judged("streaming", faults, right, "where chunks are cut, and whether the last one is sent")
