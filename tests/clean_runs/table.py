"""Clean runs as a page of documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.clean_runs.runs import RUNS

HEAD = """# Clean runs

Written by `python -m tests.clean_runs`. A correct implementation must not be called wrong: not with other pages,
presets and prompts, not with more threads, other seeds, another Pillow or another attention kernel, not on a loaded
machine, and not the vendor's own files. torch is 2.13 in all of them. Each row is one run of pytest; a case is a page,
a prompt and a preset, held against the vendor's code. The largest error is that of a seam or of logits, relative, in
float32; the limit is 2e-5 at seams, and 1e-4 for logits and with another attention. What is NOT-COMPARED neither side
has, such as crops in a preset without them.
"""


@dataclass(frozen=True)
class Found:
    """What one run said."""

    name: str
    passes: bool
    verdict: str
    tests: int
    cases: int
    failed: Sequence[str]
    """The cases that did not pass."""
    counts: Mapping[str, int]
    """Comparisons by verdict."""
    worst_error: float

    def to_json(self) -> dict[str, Any]:
        """Give its fields."""
        return asdict(self)


def table(found: Sequence[Found]) -> str:
    """Give the page: the totals, and a row for each run."""
    varied = {run.name: run.varied for run in RUNS}
    failed = sum(len(one.failed) for one in found)
    lines = [
        HEAD,
        f"{sum(one.cases for one in found)} cases in {len(found)} runs, {sum(one.tests for one in found)} tests; "
        f"cases that failed: {failed}.\n",
        "| run | what is other | cases | tests | comparisons | largest error | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(_row(one, varied[one.name]) for one in found),
    ]
    return "\n".join(lines) + "\n"


def _row(one: Found, varied: str) -> str:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in one.counts.items())
    return (
        f"| {one.name} | {varied} | {one.cases} | {one.tests} | {counts} | {one.worst_error:.1e} | "
        f"{one.verdict}{'' if not one.failed else ': ' + ', '.join(one.failed)} |"
    )
