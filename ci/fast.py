"""Measure the fast session on a GPU: its steps kernel by kernel, and many pages at once; weights may be random.

    python -m ci.fast --attention eager --out fast.json

Its stages are held against another session's or the vendor's by ``dsocr bench subject:session subject:session:fast``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch

from pytest_dsocr.engine.fast.batch import PageBatch
from pytest_dsocr.engine.fast.model import FastDeepseekOCR
from pytest_dsocr.engine.fast.step import PLAIN
from pytest_dsocr.engine.session import Session
from pytest_dsocr.pages.page_list import shipped

ADDED = ("score", "gate_up", "down", "qkv", "attend", "project")
"""In this order each kernel takes the place of plain PyTorch."""
STEPS, ROUNDS, WARM_UP_STEPS = 40, 5, 3
PAGES_A_ROW = 2
"""So that pages join while others are read."""

Figures = Iterator[tuple[str, dict[str, float]]]


def steps(session: Session[Any], positions: Sequence[int]) -> Figures:
    """Yield the milliseconds of a captured step: in plain PyTorch, with each kernel added, and with the host's part."""
    model = session.model
    assert isinstance(model, FastDeepseekOCR)
    fused, operations = model.operations, PLAIN
    for name in ("plain", *ADDED):
        if name in ADDED:
            operations = replace(operations, **{name: getattr(fused, name)})
        model.operations = operations
        rounds = {at: [step_ms(session, at, fetched=False) for _ in range(ROUNDS)] for at in positions}
        yield name, {f"ms at {at}": statistics.median(of) for at, of in rounds.items()}
    model.operations = fused
    yield "a token on the wall", {f"ms at {at}": step_ms(session, at, fetched=True) for at in positions}


def step_ms(session: Session[Any], position: int, *, fetched: bool) -> float:
    """Return a step's milliseconds up to a position, all launched at once, or each best token fetched and fed."""
    model = session.model
    ids = torch.arange(3, position - STEPS - WARM_UP_STEPS + 3, device=model.device)[None]
    with session.pipeline.running("prefill"):
        cache, embeds = model.new_cache(), model.embed(ids)
        model.decode(embeds, cache)
        embeds = embeds[:, -1:]
        for _ in range(WARM_UP_STEPS):
            model.decode(embeds, cache)
    with session.pipeline.running("decode"):
        _wait(model.device)
        began_s = time.perf_counter()
        for _ in range(STEPS):
            logits = model.decode(embeds, cache)
            if fetched:
                embeds = model.embed(torch.tensor([[int(logits[0, -1].argmax())]], device=model.device))
        _wait(model.device)
        return (time.perf_counter() - began_s) * 1e3 / STEPS


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def batches(session: Session[Any], rows: Sequence[int], tokens: int) -> Figures:
    """Yield, for each number of rows, tokens a second while decoding, and pages a second from image to text."""
    pages = list(islice(cycle(shipped("dev-20")), max(rows) * PAGES_A_ROW))
    alone = {page: session.run(page, max_new_tokens=tokens).token_ids for page in dict.fromkeys(pages)}
    session.stages.instrument = "timed"
    for count in rows:
        batch, asked = PageBatch(session, count), pages[: count * PAGES_A_ROW]
        batch.read_many(asked[: count + 1], max_new_tokens=min(tokens, 20))
        began_s = time.perf_counter()
        results = batch.read_many(asked, max_new_tokens=tokens)
        took_s = time.perf_counter() - began_s
        read = sum(len(result.token_ids) for result in results)
        decoding_s = results[0].stage_times["decode"].total_ms / 1e3
        equal = sum(result.token_ids == alone[page] for page, result in zip(asked, results, strict=True))
        figures = {"tokens a second": (read - len(results)) / decoding_s, "pages a second": len(asked) / took_s}
        yield f"{count} rows", {**figures, "as alone": equal, "of": len(asked)}


def main() -> None:
    """Print each figure as it is measured, and write all of them."""
    parser = argparse.ArgumentParser(prog="python -m ci.fast", description=(__doc__ or "").partition("\n")[0])
    for name, default in (("checkpoint", "synthetic:full"), ("device", "cuda"), ("dtype", "bfloat16")):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--attention", default="eager")
    parser.add_argument("--positions", type=int, nargs="+", default=[1239, 2000], help="length of the context")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 12, 16, 32], help="pages at once")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of each page of a batch")
    parser.add_argument("--out", type=Path, default=Path("fast.json"), help="the file of all figures")
    asked = parser.parse_args()
    how: dict[str, Any] = {name: getattr(asked, name) for name in ("device", "dtype", "attention")}
    session = Session.from_checkpoint(asked.checkpoint, **how, instrument="off", engine="fast")
    found: dict[str, Any] = {**how, "torch": torch.__version__, "steps": {}, "batches": {}}
    parts = {"steps": steps(session, asked.positions), "batches": batches(session, asked.rows, asked.tokens)}
    for part, name, figure in ((part, *one) for part, figures in parts.items() for one in figures):
        found[part][name] = figure
        print(f"{part:<9}{name:<24}{'  '.join(f'{key} {value:.4g}' for key, value in figure.items())}", flush=True)
        asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
