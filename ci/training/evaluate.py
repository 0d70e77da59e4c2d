"""How well a checkpoint reads: ``python -m ci.training.evaluate``.

Held-out pages of the generator, or a shipped subset, in float32 on the CPU; a table, and ``quality.json``.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from ci.training.figures import figures, table
from ci.training.reading import PROMPTS, Reading, Source, each, held_out, read, threads_of_each
from ci.training.telling import tell, write_json
from pytest_dsocr.contract.presets import PRESETS
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.checkpoint import Checkpoint, resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.engine.session import Session
from pytest_dsocr.engine.stages import Stage
from pytest_dsocr.pages.page_list import shipped

VISION: tuple[Stage, ...] = ("sam", "clip", "projector", "vision_fusion")
PARTS: Mapping[str, tuple[Stage, ...]] = {
    "tokenizer": ("tokenizer",),
    "vision": VISION,
    "prefill": ("prefill",),
    "decode": ("decode",),
    "postprocess": ("postprocess",),
}
"""What a page's time is told by."""


def evaluate(options: argparse.Namespace) -> Iterator[str]:
    """Read the pages that ``options`` name, yield the figures as lines, and write them to ``options.out``.

    Raises:
        DsocrError: where there is no such checkpoint or subset, or no pages.
    """
    checkpoint, pages = resolve(options.checkpoint), sources(options)
    yield f"model       {checkpoint.label}, float32 on the CPU"
    yield f"pages       {len(pages)} {options.subset or 'held out'}, {options.preset}, prompt {options.prompt}"
    task = partial(_read, options.checkpoint, prompt=options.prompt, preset=options.preset)
    readings = list(each(task, pages, options.jobs))
    yield ""
    yield from table(figures([reading.quality for reading in readings]))
    yield ""
    yield from cost(readings, options.jobs)
    path = options.out / "quality.json"
    write_json(path, {**provenance(checkpoint, options), **to_json(readings)})
    yield f"written     {path}"


def sources(options: argparse.Namespace) -> Sequence[Source]:
    """Give the pages that ``options`` name: a shipped subset, or as many held-out ones."""
    return shipped(options.subset) if options.subset else held_out(options.pages)


def cost(readings: Sequence[Reading], jobs: int) -> Iterator[str]:
    """Yield what a page took on average: seconds by part, tokens, and the largest process's memory."""
    spent = seconds(readings)
    parts = ", ".join(f"{part} {value:.3f}" for part, value in spent.items())
    yield f"seconds     {sum(spent.values()):.2f} a page ({parts})"
    yield f"            in {jobs} at a time, each by {threads_of_each(jobs)} of the processor's threads"
    tokens = fmean(len(reading.token_ids) for reading in readings)
    yield f"tokens      {fmean(r.prompt_tokens for r in readings):.0f} of prompt and {tokens:.0f} of answer a page"
    yield f"memory      {max(r.peak_bytes for r in readings) / 2**20:.0f} MiB at most, of a process"


def seconds(readings: Sequence[Reading]) -> dict[str, float]:
    """Give what a page took on average, by part."""
    return {
        part: fmean(sum(reading.stage_ms.get(stage, 0.0) for stage in stages) / 1000 for reading in readings)
        for part, stages in PARTS.items()
    }


def to_json(readings: Sequence[Reading]) -> dict[str, Any]:
    """Give the figures, what it took, and every page with its answer."""
    found = figures([reading.quality for reading in readings])
    return {
        "figures": {figure.measure.key: figure.to_json() for figure in found},
        "seconds_a_page": seconds(readings),
        "peak_bytes": max(reading.peak_bytes for reading in readings),
        "pages": [reading.to_json() for reading in readings],
    }


def provenance(checkpoint: Checkpoint, options: argparse.Namespace) -> dict[str, Any]:
    """Give what a result was made with: checkpoint, options, machine."""
    asked = {name: getattr(options, name) for name in ("subset", "preset", "prompt", "jobs")}
    machine = {"machine": platform.machine(), "torch": torch.__version__, "threads": threads_of_each(options.jobs)}
    return {"checkpoint": checkpoint.label, "sha256": checkpoint.sha256, **asked, **machine}


def add_pages(parser: argparse.ArgumentParser, pages: int) -> None:
    """Add the options that say what is read, and by which checkpoint."""
    parser.add_argument("--checkpoint", default=MINI, help="a name or a folder")
    parser.add_argument("--pages", type=int, default=pages, help="how many held-out pages of the generator")
    parser.add_argument("--subset", help="shipped pages instead, such as typeset")
    parser.add_argument("--preset", default="gundam", choices=PRESETS)
    parser.add_argument("--prompt", default="markdown", choices=PROMPTS)
    parser.add_argument("--jobs", type=int, default=1, help="processes, which share this one's threads")
    parser.add_argument("--out", type=Path, default=Path("dsocr-out"), help="folder for what is written")


@cache
def timed_session(checkpoint: str) -> Session[KVCache]:
    """Give this process's session on ``checkpoint``."""
    return Session.from_checkpoint(checkpoint, instrument="timed")


def _read(checkpoint: str, source: Source, *, prompt: str, preset: str) -> Reading:
    return read(timed_session(checkpoint), source, prompt=prompt, preset=preset)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if all went well, 2 on bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m ci.training.evaluate",
        description="How well a checkpoint reads pages whose content is known.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_pages(parser, 200)
    return tell(evaluate(parser.parse_args(arguments)))


if __name__ == "__main__":
    raise SystemExit(main())
