"""Decode steps of the fast session: what each kernel gives, and a token on the wall."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from ci.fast.timing import once_ms
from pytest_dsocr.engine.fast.model import FastDeepseekOCR
from pytest_dsocr.engine.fast.step import PLAIN
from pytest_dsocr.engine.session import Session

ADDED = ("score", "gate_up", "down", "qkv", "attend", "project")
"""In this order each kernel takes the place of plain PyTorch."""
STEPS, ROUNDS, WARM_UP_STEPS = 40, 5, 3


def steps(session: Session[Any], positions: Sequence[int]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the milliseconds of a captured step: in plain PyTorch, with each kernel added, and with the host's part."""
    model = session.model
    assert isinstance(model, FastDeepseekOCR)
    fused, operations = model.operations, PLAIN
    try:
        for name in ("plain", *ADDED):
            if name in ADDED:
                operations = replace(operations, **{name: getattr(fused, name)})
            model.operations = operations
            yield name, {f"ms at {at}": step_ms(session, at) for at in positions}
    finally:
        model.operations = fused
    yield "a token on the wall", {f"ms at {at}": wall_ms(session, at) for at in positions}


def step_ms(session: Session[Any], position: int) -> float:
    """Give a step's milliseconds on the device, the launches of the next ones hidden behind it."""
    device, of_rounds = session.model.device, list[float]()
    for _ in range(ROUNDS):
        cache, embeds = _filled(session, position - STEPS)

        def walk(cache: Any = cache, embeds: Any = embeds) -> None:
            for _ in range(STEPS):
                session.model.decode(embeds, cache)

        with session.pipeline.running("decode"):
            of_rounds.append(once_ms(walk, device) / STEPS)
    return statistics.median(of_rounds)


def wall_ms(session: Session[Any], position: int) -> float:
    """Give a token's milliseconds where each best token is fetched and fed, as reading does."""
    cache, embeds = _filled(session, position - STEPS)
    with session.pipeline.running("decode"):
        began_s = time.perf_counter()
        for _ in range(STEPS):
            best = int(session.model.decode(embeds, cache)[0, -1].argmax())
            embeds = session.model.embed(torch.tensor([[best]], device=session.model.device))
        return (time.perf_counter() - began_s) * 1e3 / STEPS


def _filled(session: Session[Any], length: int) -> tuple[Any, torch.Tensor]:
    """Give a cache of so many positions, after some steps, and the embedding of a token to feed."""
    model = session.model
    ids = torch.arange(3, length - WARM_UP_STEPS + 3, device=model.device)[None]
    with session.pipeline.running("prefill"):
        cache, embeds = model.new_cache(), model.embed(ids)
        model.decode(embeds, cache)
        for _ in range(WARM_UP_STEPS):
            model.decode(embeds[:, -1:], cache)
    return cache, embeds[:, -1:]
