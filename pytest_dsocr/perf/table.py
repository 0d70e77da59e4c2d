"""A comparison as lines for a terminal: who was compared, each quantity's times and verdict, and what else changed."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_dsocr.foundation.words import HASH_CHARACTERS, aligned, count, entry
from pytest_dsocr.perf.bench import LABELS, Bench
from pytest_dsocr.perf.candidate import SUBJECT
from pytest_dsocr.perf.changes import other_changes
from pytest_dsocr.perf.judgement import Judgement, Pace
from pytest_dsocr.perf.rounds import Measured

HEAD = ("stage", "A ms", "B ms", "B / A", "interval", "allowed", "verdict")
LEFT = ("stage", "verdict")


def lines_of(bench: Bench) -> Iterator[str]:
    """Yield the comparison; what the machine's calibration says, and the verdict, are told behind it."""
    for label, side in zip(LABELS, (bench.a, bench.b), strict=True):
        yield from entry(label, side_in_words(side))
    page = bench.a.identity["page"]
    yield from entry("page", f"{page['name']}, {page['preset']}, up to {count(page['max_new_tokens'], 'token')}")
    yield from entry("rounds", f"{count(len(bench.a.rounds), 'pair')} taken in turn, A and B first by turns")
    yield ""
    if bench.judgements:
        yield from aligned([HEAD, *(row_of(one) for one in bench.judgements)], LEFT)
        yield ""
    if bench.apart:
        yield from entry("apart", bench.apart)
    else:
        yield from entry("equal", "the text that is read" + (_equal_counts(bench) if not bench.changes else ""))
    for change in (*(one.told for one in bench.changes), *other_changes(bench.a, bench.b)):
        yield from entry("changed", change)


def _equal_counts(bench: Bench) -> str:
    return f", and all {len(bench.a.exact)} quantities that are counted"


def side_in_words(side: Measured) -> str:
    """Give what a side ran."""
    identity = side.identity
    commit, _, changed = str(identity["commit"]).partition("-")
    what = [str(identity["name"])]
    if commit:
        what.append(f"commit {commit[:HASH_CHARACTERS]}" + (" with changes" if changed else ""))
    if not str(identity["name"]).startswith(f"{SUBJECT}{identity['subject']}"):
        what.append(str(identity["subject"]))
    setup = identity["setup"]
    what += [setup["checkpoint"], identity["machine"].get("gpu", "cpu"), setup["dtype"], setup["attention"]]
    what += [f"planted {name} +{share:.0%}" for name, share in identity["planted"].items()]
    return ", ".join(what)


def row_of(one: Judgement) -> tuple[str, ...]:
    """Give the row of one quantity."""
    if one.pace is Pace.NOT_COMPARED:
        return (one.quantity, "", "", "", "", "", f"{one.pace}: {one.reason}")
    more = f"; {one.reason or f'{one.wanted} pairs might tell'}" if one.pace is Pace.AMBIGUOUS else ""
    return (
        one.quantity,
        f"{one.before_ms:.4g}",
        f"{one.after_ms:.4g}",
        f"{one.ratio:.3f}",
        f"{one.low:.3f} to {one.high:.3f}",
        f"{1 + one.limit:.3f}",
        f"{one.pace}{more}",
    )
