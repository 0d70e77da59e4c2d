"""What a report says in words: counts, and the two sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_dsocr.compare.verdict import SEVERITY
from pytest_dsocr.foundation.words import HASH_CHARACTERS, count, near

if TYPE_CHECKING:
    from pytest_dsocr.report.payload import CasePayload, RunPayload


BY_SESSION = "by the session, equal to the vendor's code where recorded"
"""Said of every verdict that rests on the session's word."""


def counts(by_verdict: Mapping[str, int]) -> str:
    """Give ``1 WRONG, 4 DRIFT, 10 MATCH; 2 not made``, the gravest first."""
    *made, not_made = [by_verdict.get(verdict, 0) for verdict in SEVERITY[::-1]]
    told_of = ", ".join(f"{n} {verdict}" for n, verdict in zip(made, SEVERITY[::-1], strict=False) if n)
    return "; ".join(part for part in (told_of, f"{not_made} not made" if not_made else "") if part)


def reference_in_words(run: RunPayload) -> str:
    """Say which reference it is, how it is keyed, and which of the vendor's files it is of."""
    made = run["provenance"]
    if run["reference"] == "session":
        held = f"{near(run['where'])} answers for what it holds" if run["where"] else "no recording has this key"
        return f"{BY_SESSION}, {run['key']} ({held})"
    how = f"recorded on {made['date']}" if run["reference"] == "recorded" else "live"
    main_file = next(iter(made["vendor_sha256"].values()), "unknown")[:HASH_CHARACTERS]
    return f"{how}, {run['key']}, vendor's file {main_file} ({near(run['where'])})"


def by_session(cases: Sequence[CasePayload]) -> str:
    """Say behind a verdict on how many of the cases it rests on the session's word; nothing where on none."""
    number = sum(case["by_session"] for case in cases)
    some = f"{number} of {count(len(cases), 'case')} " if number < len(cases) else ""
    return f", {some}{BY_SESSION}" if number else ""


def subject_in_words(run: RunPayload) -> str:
    """Say which subject it is, what it offers, and how it was made."""
    made = f"{run['checkpoint']}/{run['device']}-{run['dtype']}-{run['attention']}"
    return ", ".join([run["subject"], *([run["level"]] if run["level"] else []), made])
