"""What a run's times and counts come to, as comparisons that ``dsocr_check`` takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.verdict import Comparison, Verdict, not_compared
from pytest_dsocr.foundation.words import HASH_CHARACTERS
from pytest_dsocr.perf.counts import changed_conditions
from pytest_dsocr.perf.rounds import Measured
from pytest_dsocr.perf.run import PerfRun
from pytest_dsocr.perf.statistics import Judgement, Pace, judge
from pytest_dsocr.perf.summary import distributions, of_judgement
from pytest_dsocr.plugin.typed import typed_options
from pytest_dsocr.report.commands import rerun

PROFILE = "nsys profile --trace=cuda,nvtx"
"""What a slower stage is looked into with; the session's stages are NVTX ranges."""
CLOCKS = ("sm_mhz", "memory_mhz", "cpu_mhz")
WATCHING = 0.01
"""How much longer the subject's own ranges may make a step."""
WATCHED_PAGES = (1, 2)
"""How many pages are read for it, and how many more where these do not tell."""
GROWTH = 0.05
"""How much longer a late step may be than an early one, beside what it attends to more."""


def comparison_of(run: PerfRun, quantity: str, test: pytest.Item) -> Comparison:
    """Return a quantity's judgement as a comparison of the run; an AMBIGUOUS one is NOT-COMPARED."""
    found = run.judgement(quantity)
    if found is None:
        what = f"perf/{quantity}"
        return not_compared(what, Reason.NOT_IN_REFERENCE, f"{quantity} is not in the baseline; accept it anew")
    return _compared(found, tuple(_details(run, found, test)) if found.pace is Pace.SLOWER else ())


def exact_comparisons(run: PerfRun) -> Iterator[Comparison]:
    """Compare the exact quantities with the baseline's; less for the same work is as good as equal."""
    assert run.baseline is not None
    worse = {one.quantity: one for one in run.changes if one.is_work or one.is_worse}
    for name, value in run.measured.exact.items():
        if name in worse:
            yield Comparison(f"perf/{name}", Verdict.WRONG, f"{value}; the baseline has {worse[name].before}")
        elif name in run.baseline.measured.exact:
            yield Comparison(f"perf/{name}", Verdict.MATCH, str(value))


def watching_costs(
    steps_of: Callable[[int], tuple[list[float], list[float]] | None], more_pages: Sequence[int] = WATCHED_PAGES
) -> Comparison | None:
    """Compare decode steps with the subject's ranges shut and open, taken in turn, on more pages while it is open.

    Args:
        steps_of: returns milliseconds without and within ranges, of so many pages; None where there are none.
        more_pages: how many are read before each look.
    """
    without: list[float] = []
    within: list[float] = []
    for look, pages in enumerate(more_pages, 1):
        if (more := steps_of(pages)) is None:
            return None
        without, within = without + more[0], within + more[1]
        times, limits = {"watching": (without, within)}, {"watching": WATCHING}
        [found] = judge(times, limits, paired=True, look=look, looks=len(more_pages))
        if found.settled:
            break
    return _compared(found, (), "without ranges")


def growth(measured: Measured) -> Comparison:
    """Compare late decode steps with early ones of the same rounds."""
    start, tokens = measured.exact["tokens.prompt"], measured.exact["tokens.output"]
    allowed = (start + tokens) / start - 1 + GROWTH
    times = measured.wall_ms("decode.early"), measured.wall_ms("decode.late")
    [found] = judge({"decode growth": times}, {"decode growth": allowed}, paired=True)
    return _compared(found, (), "an early step")


def _compared(found: Judgement, details: tuple[str, ...], other: str = "the baseline") -> Comparison:
    what = f"perf/{found.quantity}"
    if found.pace in (Pace.AMBIGUOUS, Pace.NOT_COMPARED):
        return not_compared(what, Reason.TELLS_NOTHING, of_judgement(found, other))
    verdict = Verdict.WRONG if found.pace is Pace.SLOWER else Verdict.MATCH
    return Comparison(what, verdict, of_judgement(found, other), details=details)


def _details(run: PerfRun, found: Judgement, test: pytest.Item) -> Iterator[str]:
    """Say how the rounds lie, what else changed, and what to type next."""
    assert run.baseline is not None
    before, after = run.baseline.measured, run.measured
    yield from distributions(before.wall_ms(found.quantity), after.wall_ms(found.quantity))
    yield f"what else changed: {'; '.join(_changed(run)) or 'no count and no clock'}"
    commit = (run.baseline.commit or "unknown")[:HASH_CHARACTERS]
    yield f"the baseline is of {run.baseline.made}, commit {commit}"
    again = rerun(test.nodeid, typed_options(test.config))
    yield f"accept: {again} --dsocr-baseline-update"
    yield f"profile: {PROFILE} python -m {again}"


def _changed(run: PerfRun) -> Iterator[str]:
    """Name what differs between the baseline and this run beside the times: counts and clocks."""
    assert run.baseline is not None
    yield from (f"{one.quantity} {one.before} -> {one.after}" for one in run.changes)
    for name, was, now in changed_conditions(run.baseline.measured, run.measured):
        if name in CLOCKS:
            yield f"{name} {was:.0f} -> {now:.0f}"
