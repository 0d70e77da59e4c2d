"""A comparison of two versions in files: JSON, a comment on a pull request, and Bencher's format."""

import json

from pytest_dsocr.base.words import entry
from pytest_dsocr.report.file import now
from pytest_dsocr.report.views import cell, table
from pytest_dsocr.timing.bench import HEAD, Bench, differences_of, row_of, sides_of
from pytest_dsocr.timing.run import spreads_of

MARKER = "<!-- dsocr-bench -->"
"""The first line of a comment, by which a workflow finds the one to update."""
NS = 1e6
"""Nanoseconds of a millisecond."""


def as_json(bench: Bench) -> str:
    """Return the result and every round, and when it was made."""
    return json.dumps({"started": now(), **bench.to_json()}, indent=1) + "\n"


def markdown(bench: Bench) -> str:
    """Return a comment: the verdict first, then the table, what changed, and what was compared, as code."""
    rows = [row_of(one) for one in bench.judgements]
    lines = [MARKER, f"**dsocr bench: {cell(bench.verdict)}**", "", *table(HEAD, rows), ""]
    trace = entry("trace", bench.trace.sentence) if bench.trace else ()
    found = [*differences_of(bench), *trace, *sides_of(bench)]
    return "\n".join((*lines, *(f"    {line}" for line in found))) + "\n"


def bencher(bench: Bench) -> str:
    """Return B's median and quartiles of each quantity, as its ``latency`` in nanoseconds (Bencher Metric Format)."""
    metrics = {
        f"dsocr/{name}": {
            "latency": {"value": NS * one.median_ms, "lower_value": NS * one.low_ms, "upper_value": NS * one.high_ms}
        }
        for name, one in spreads_of(bench.b).items()
    }
    return json.dumps(metrics, indent=1) + "\n"
