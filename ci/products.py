"""How near each matrix product of a decode step comes to the GPU's bandwidth, and what of a step the products are.

    python -m ci.products --device h200

Each is run alone, in a captured graph so that no launch is waited for, on so many weights in turn that none is found in
the cache. What a step works beyond their sum are the small kernels between them: norms, positions, routing, copies.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from pytest_dsocr.cost.roofline import device_called
from pytest_dsocr.engine.architecture import DecoderConfig
from pytest_dsocr.foundation.words import aligned

REPEATS = 30
BEYOND_CACHE_BYTES = 400_000_000
HEAD = ("product", "runs a step", "MB", "us", "GB/s", "of the peak", "us a step", "least")
ITEM_BYTES = 2


@dataclass(frozen=True)
class Product:
    """One kind of product with a single row, and how often a step runs it."""

    name: str
    inner: int
    outer: int
    runs: int

    @property
    def bytes(self) -> int:
        """Weights, what goes in and what comes out."""
        return ITEM_BYTES * (self.inner * self.outer + self.inner + self.outer)


def products(config: DecoderConfig) -> list[Product]:
    """Give the products of a step in which each layer runs as many experts as a token has."""
    width, expert = config.hidden_size, config.moe_intermediate_size
    layers, shared = config.num_hidden_layers, config.n_shared_experts * expert
    moe = sum(map(config.is_moe, range(layers)))
    dense, chosen = layers - moe, moe * config.num_experts_per_tok
    return [
        Product("q, k, v, o", width, width, 4 * layers),
        Product("dense gate, up", width, config.intermediate_size, 2 * dense),
        Product("dense down", config.intermediate_size, width, dense),
        Product("router", width, config.n_routed_experts, moe),
        Product("expert gate, up", width, expert, 2 * chosen),
        Product("expert down", expert, width, chosen),
        Product("shared gate, up", width, shared, 2 * moe),
        Product("shared down", shared, width, moe),
        Product("lm_head", width, config.vocab_size, 1),
    ]


def microseconds(calls: Sequence[Callable[[], Tensor]]) -> float:
    """Give the microseconds of one call, of the mean over all."""
    for call in calls[:3]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    for _ in range(REPEATS):
        graph.replay()
    ended.record()
    torch.cuda.synchronize()
    return float(began.elapsed_time(ended)) * 1e3 / REPEATS / len(calls)


def measured(product: Product) -> float:
    """Give a product's microseconds in bfloat16."""
    how = {"device": "cuda", "dtype": torch.bfloat16}
    row = torch.randn(1, product.inner, **how)  # type: ignore[call-overload]
    copies = max(2, BEYOND_CACHE_BYTES // product.bytes)
    weights = [torch.randn(product.outer, product.inner, **how) for _ in range(copies)]  # type: ignore[call-overload]
    return microseconds([lambda weight=weight: linear(row, weight) for weight in weights])  # type: ignore[misc]


def lines_of(config: DecoderConfig, bandwidth_gb_s: float) -> Iterator[str]:
    """Yield a row for each product, and their sum."""
    rows, sum_us, least_us = [], 0.0, 0.0
    for one in products(config):
        us, least = measured(one), one.bytes / bandwidth_gb_s / 1e3
        sum_us, least_us = sum_us + us * one.runs, least_us + least * one.runs
        gb_s = one.bytes / us / 1e3
        figures = (f"{one.bytes / 1e6:.2f}", f"{us:.2f}", f"{gb_s:.0f}", f"{gb_s / bandwidth_gb_s:.0%}")
        rows.append((one.name, str(one.runs), *figures, f"{us * one.runs:.0f}", f"{least * one.runs:.1f}"))
    yield from aligned([HEAD, *rows, ("all", "", "", "", "", "", f"{sum_us:.0f}", f"{least_us:.1f}")], HEAD[:1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--device", default="h200", help="whose peak is the measure (default: h200)")
    device = device_called(parser.parse_args().device)
    for line in lines_of(DecoderConfig(), device.bandwidth_gb_s):
        print(line)


if __name__ == "__main__":
    main()
