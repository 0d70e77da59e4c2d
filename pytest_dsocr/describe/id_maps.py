"""Ids that are one function of the expected ids at every place: a rounding, a wrap, a limit or an offset."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from pytest_dsocr.describe.description import Description

ROUNDED, WRAPPED = ("bfloat16", "float16"), ("int8", "uint8", "int16")
"""Names of torch's dtypes."""
LEAST_KINDS = 2
"""Number of different ids that must change alike: any function maps one."""
SHOWN = 3
LARGEST = 2**31
"""Bound of ids that a tensor holds."""


def relations(actual: Sequence[int], expected: Sequence[int]) -> Iterator[Description]:
    """Yield the functions that turn all expected ids into the subject's, at every place.

    No function of a dtype has a fitted number. A limit and an offset are fitted on one id and verified on all others.
    """
    pairs = dict(zip(expected, actual, strict=False))
    changed = {id_: to for id_, to in pairs.items() if id_ != to}
    is_of_id = len(actual) == len(expected) and all(pairs[b] == a for a, b in zip(actual, expected, strict=True))
    if not is_of_id or len(changed) < LEAST_KINDS or max(map(abs, pairs)) >= LARGEST:
        return
    for words, function in _functions(pairs, changed).items():
        if all(function(id_) == to for id_, to in pairs.items()):
            shown = ", ".join(f"{id_} is {to}" for id_, to in [*changed.items()][:SHOWN])
            text = f"{words}: {shown}; {len(changed)} of {len(pairs)} different ids change"
            yield Description("id-function", text, 1.0, len(expected))


def _functions(pairs: Mapping[int, int], changed: Mapping[int, int]) -> Mapping[str, Callable[[int], int]]:
    """Return functions by their words."""
    least, limit = min(changed), min(changed.values())
    offset = changed[least] - least
    by_words: dict[str, Callable[[int], int]] = {
        **{f"every id is rounded as {one} rounds it": partial(_cast, one) for one in ROUNDED},
        **{f"every id is wrapped as {one} wraps it": partial(_cast, one) for one in WRAPPED},
        f"every id above {limit:,} is {limit:,}": lambda id_: min(id_, limit),
    }
    if min(pairs) < least:
        by_words[f"every id from {least:,} on is {offset:+,}"] = lambda id_: id_ + offset * (id_ >= least)
    return by_words


def _cast(dtype: str, id_: int) -> int:
    import torch  # suites import this module at collection, which loads nothing heavy

    return int(torch.tensor(id_).to(getattr(torch, dtype)).long())
