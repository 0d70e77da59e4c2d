"""Measure the fast session on a GPU, beside the readable one and in turn with it; weights may be random.

    python -m ci.fast steps stages batches --attention eager --out fast.json

Against the vendor's own code it is measured by ``dsocr bench``, watched against bare by tests/bench_watching.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ci.fast.batches import batches
from ci.fast.stages import stages
from ci.fast.steps import steps
from ci.fast.timing import Sessions, device_name, load

PARTS: Mapping[str, Callable[[Sessions, argparse.Namespace], Iterator[tuple[str, Any]]]] = {
    "steps": lambda sessions, asked: steps(sessions.fast, asked.positions),
    "stages": lambda sessions, asked: stages(sessions, asked.rounds),
    "batches": lambda sessions, asked: batches(sessions.fast, asked.rows, asked.tokens),
}


def main() -> None:
    """Print each figure as it is measured, and write all of them."""
    asked = _parser().parse_args()
    sessions = load(asked.checkpoint, asked.device, asked.dtype, asked.attention)
    found: dict[str, Any] = {"device": device_name(asked.device), "dtype": asked.dtype, "attention": asked.attention}
    for part in asked.parts:
        for name, figure in PARTS[part](sessions, asked):
            found.setdefault(part, {})[name] = figure
            shown = "  ".join(f"{key} {value:.4g}" for key, value in figure.items())
            print(f"{part:<9}{name:<40}{shown}", flush=True)
            asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ci.fast", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="+", choices=list(PARTS), help="what to measure")
    parser.add_argument("--checkpoint", default="synthetic:full")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--attention", default="eager")
    parser.add_argument("--positions", type=int, nargs="+", default=[1239, 2000], help="length of the context")
    parser.add_argument("--rounds", type=int, default=15, help="how often each stage is timed")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 12, 16, 32], help="pages at once")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of each page of a batch")
    parser.add_argument("--out", type=Path, default=Path("fast.json"), help="the file of all figures")
    return parser


if __name__ == "__main__":
    main()
