"""Pages with their ground truth, read by the session and held against it, several at a time if asked for."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch

from ci.training.generator import generate
from ci.training.page import Page
from ci.training.quality import PageQuality, measure
from ci.training.seeds import HELD_OUT_SEEDS
from ci.training.truth import load_truth
from pytest_dsocr.contract.markup import Markup, parse
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.result import Result
from pytest_dsocr.engine.session import Session
from pytest_dsocr.engine.stages import Stage
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.process import progress_bar

CEILING = 640
"""New tokens at which an answer is cut off: well above what the longest page takes."""
PROMPTS = ("markdown", "free")
"""Those that pages have a ground truth for."""

Source = int | Path
"""Where a page comes from: the seed of one to draw, or the file of one that is shipped."""
T = TypeVar("T")


@dataclass(frozen=True)
class Reading:
    """What was read on one page, how well, and what it took."""

    page: str
    text: str
    token_ids: tuple[int, ...]
    quality: PageQuality
    prompt_tokens: int
    stage_ms: dict[Stage, float]
    """Empty unless the session's instrument is ``timed``."""
    peak_bytes: int
    """The most memory that the process has held so far."""

    def to_json(self) -> dict[str, Any]:
        """Give the page's name, the counts of its quality, what it took, and the text."""
        took = {"prompt_tokens": self.prompt_tokens, "output_tokens": len(self.token_ids), "stage_ms": self.stage_ms}
        return {"page": self.page, **asdict(self.quality), **took, "text": self.text}


def open_page(source: Source) -> tuple[str, Page]:
    """Draw or load a page; gives its name as well."""
    if isinstance(source, int):
        page = generate(source)
        return f"{page.kind}-{source}", page
    return source.stem, load_truth(source)


def held_out(count: int) -> Sequence[int]:
    """Give the seeds of ``count`` generated pages that no training sees; raise ``DsocrError`` where there are fewer."""
    if not 1 <= count <= len(HELD_OUT_SEEDS):
        raise DsocrError(f"{count} held-out pages cannot be drawn; give 1 to {len(HELD_OUT_SEEDS)}")
    return HELD_OUT_SEEDS[:count]


def truth_of(page: Page, prompt: str) -> Markup:
    """Give what should be read on ``page``, by a prompt of :data:`PROMPTS`."""
    return parse(page.answer(grounded=prompt == "markdown"))


def read(session: Session[KVCache], source: Source, *, prompt: str, preset: str) -> Reading:
    """Read one page to its end, at most :data:`CEILING` tokens."""
    name, page = open_page(source)
    result = session.run(page.image, prompt=prompt, preset=preset, max_new_tokens=CEILING)
    return judge(name, result, truth_of(page, prompt))


def judge(name: str, result: Result, truth: Markup) -> Reading:
    """Hold what a session read against the truth."""
    return Reading(
        page=name,
        text=result.text,
        token_ids=result.token_ids,
        quality=measure(truth, result.markup, ended=result.finish_reason == "eos"),
        prompt_tokens=result.counts.prompt_tokens,
        stage_ms={stage: times.total_ms for stage, times in result.stage_times.items()},
        peak_bytes=peak_bytes(),
    )


def each(task: Callable[[Source], T], sources: Sequence[Source], jobs: int) -> Iterator[T]:
    """Yield ``task`` of every source in order, under a progress bar; with several ``jobs`` each has a process.

    The processes share the processors that this one would use.
    """
    if jobs < 1:
        raise DsocrError(f"{jobs} jobs read nothing; give 1 or more")
    with progress_bar(unit="page", total=len(sources)) as bar:
        for done in _mapped(task, sources, jobs):
            bar.update()
            yield done


def _mapped(task: Callable[[Source], T], sources: Sequence[Source], jobs: int) -> Iterator[T]:
    if jobs == 1:
        yield from map(task, sources)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (threads_of_each(jobs),)) as pool:
        yield from pool.map(task, sources)


def threads_of_each(jobs: int) -> int:
    """Give the threads that each of several processes computes with."""
    return max(1, torch.get_num_threads() // jobs)


def peak_bytes() -> int:
    """Give the most memory that this process has held: its largest resident set."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
