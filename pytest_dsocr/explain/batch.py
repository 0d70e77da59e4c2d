"""The way in which padding changes the rows of a batch, told from their texts by computing it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.base.words import joined
from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.pair import named
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.result import PageResult
from pytest_dsocr.explain.mistake import Changes, blocks_of
from pytest_dsocr.layers.attention import AttentionFunction
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.models.spec import PREFILL
from pytest_dsocr.records.case import Case

BatchWay = Callable[[Engine[Any], Changes], None]


def describe_batch(engine: Engine[Any], cases: Sequence[Case], texts: Sequence[str]) -> Description | None:
    """Return the way to compute a batch that gives its texts; None if none does.

    Args:
        engine: an engine without a mistake.
        cases: the pages in the batch's order, in one preset and with one prompt.
        texts: what the subject read of them together.
    """
    own = [clean_output(text) for text in texts]
    for words, put in WAYS.items():
        with Changes() as changes, torch.no_grad():
            put(engine, changes)
            made = _read(engine, cases)
        if [one.text for one in made] != own:
            continue
        if not words:
            return None
        sizes = [one.counts.prompt_tokens for one in made]
        rows = named("row", [row for row, size in enumerate(sizes, 1) if size < max(sizes)])
        padding = joined([f"{max(sizes) - size:,}" for size in sizes if size < max(sizes)])
        where = f"in the shorter {rows} of {len(sizes)}, which {padding} positions of padding fill up"
        text = f"with {words} {where}, the engine reads the same texts"
        return Description("batch", text, 1.0, len(texts))
    return None


def _read(engine: Engine[Any], cases: Sequence[Case]) -> list[PageResult]:
    pages, first = [one.page for one in cases], cases[0]
    return engine.run_batch(pages, prompt=first.prompt, preset=first.preset, max_new_tokens=first.max_new_tokens)


def _right(engine: Engine[Any], changes: Changes) -> None:
    """Change nothing."""


def _seeing(change: Callable[[int], int] | None) -> BatchWay:
    """Return the way in which a row sees another number of positions than it has; None for all of the batch."""

    def put(engine: Engine[Any], changes: Changes) -> None:
        for layer in blocks_of(engine, PREFILL):
            usual = layer.self_attn.attend
            changes.set(layer.self_attn, "attend", partial(_attend, usual, change))

    return put


def _attend(
    usual: AttentionFunction,
    change: Callable[[int], int] | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Sequence[int] | None,
) -> Tensor:
    return usual(q, k, v, None if lengths is None or change is None else [*map(change, lengths)])


def _turned(change: Callable[[list[int]], list[int]]) -> BatchWay:
    """Return the way in which rows of unlike length are rotated by other positions than those of their slots."""
    usual, append = KVCache.positions, KVCache.append

    def positions(cache: KVCache, new: int, device: torch.device) -> Tensor:
        if not cache.is_ragged:
            return usual(cache, new, device)
        return torch.tensor(change(cache.seen), device=device)[:, None]

    def kept(cache: KVCache, layer: int, keys: Tensor, values: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        at = torch.tensor(cache.slots, device=keys.device)[:, None] if cache.is_ragged else at
        return append(cache, layer, keys, values, at)

    def put(engine: Engine[Any], changes: Changes) -> None:
        changes.set(KVCache, "positions", positions)
        changes.set(KVCache, "append", kept)

    return put


WAYS: Mapping[str, BatchWay] = {
    "": _right,
    "attention to the padding behind a row's own tokens": _seeing(None),
    "attention to one position of padding": _seeing(lambda length: length + 1),
    "attention to all but the last token": _seeing(lambda length: length - 1),
    "the longest row's position for each new token": _turned(lambda seen: [max(seen)] * len(seen)),
    "new tokens' positions one too high": _turned(lambda seen: [one + (one < max(seen)) for one in seen]),
    "new tokens' positions one too low": _turned(lambda seen: [one - (one < max(seen)) for one in seen]),
}
