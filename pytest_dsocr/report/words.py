"""Phrases that several reports share: counts, and the two sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_dsocr.compare.verdict import SEVERITY, Verdict
from pytest_dsocr.foundation.words import HASH_CHARACTERS, count, near

if TYPE_CHECKING:
    from pytest_dsocr.report.payload import CasePayload, RunPayload


BY_SESSION = "by the session, equal to the vendor's code where recorded"
"""Added to every verdict for which the session answered for the reference."""


def counts(by_verdict: Mapping[str, int], worst_drift: float = 0.0) -> str:
    """Return ``1 WRONG, 4 DRIFT, 10 MATCH; 2 not made``, the gravest first; DRIFT with the largest error, if given."""
    names = {str(verdict): str(verdict) for verdict in SEVERITY[::-1]}
    if worst_drift:
        names[Verdict.DRIFT] += f" within {worst_drift:.1e}"
    not_made = by_verdict.get(names.pop(Verdict.NOT_COMPARED), 0)
    made = ", ".join(f"{by_verdict[verdict]} {name}" for verdict, name in names.items() if by_verdict.get(verdict))
    return "; ".join(part for part in (made, f"{not_made} not made" if not_made else "") if part)


def first_wrong(what: str, right_before: int) -> str:
    """Say what is wrong first, and how many comparisons before it passed."""
    return (
        f"{what}, after {count(right_before, 'comparison')} that passed"
        if right_before
        else f"{what}, the first that was compared"
    )


def reference_in_words(run: RunPayload) -> str:
    """Say which reference it is, how it is keyed, and which of the vendor's files it is of."""
    made = run["provenance"]
    if run["reference"] == "session":
        held = f"{near(run['where'])} answers for what it holds" if run["where"] else "no recording has this key"
        return f"{BY_SESSION}, {run['key']} ({held})"
    how = f"recorded on {made['date']}" if run["reference"] == "recorded" else "live"
    main_file = next(iter(made["vendor_sha256"].values()), "unknown")[:HASH_CHARACTERS]
    nearest = f", {run['nearest']}" if run.get("nearest") else ""
    return f"{how}{nearest}, {run['key']}, vendor's file {main_file} ({near(run['where'])})"


def by_session(cases: Sequence[CasePayload]) -> str:
    """Say for how many cases the session answered for the reference; nothing where for none."""
    number = sum(case["by_session"] for case in cases)
    some = f"{number} of {count(len(cases), 'case')} " if number < len(cases) else ""
    return f", {some}{BY_SESSION}" if number else ""


def first_token_in_words(cases: Sequence[Mapping[str, Any]]) -> str:
    """Say how long the first text of a page took a subject that streams; nothing where none reported it."""
    took = [one["first_token_ms"] for one in cases if isinstance(one.get("first_token_ms"), int | float)]
    if not took:
        return ""
    return f"{median(took):.0f} ms in the median of {count(len(took), 'case')}, {max(took):.0f} ms at most"


def compression_of(cases: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """Return vision tokens a page and text tokens for each of them, over all cases; None where none is counted."""
    counted = [one["compression"] for one in cases if one.get("compression")]
    if not counted:
        return None
    vision, text = (sum(one[name] for one in counted) for name in ("vision_tokens", "text_tokens"))
    found = {"vision_tokens_per_page": vision / len(counted), "text_tokens_per_vision_token": text / vision}
    return {"cases": len(counted), **found}


def compression_in_words(cases: Sequence[Mapping[str, Any]]) -> str:
    """Say the same in a line; nothing where nothing is counted."""
    found = compression_of(cases)
    if found is None:
        return ""
    page, ratio = found["vision_tokens_per_page"], found["text_tokens_per_vision_token"]
    return f"{page:.0f} vision tokens a page, {ratio:.2f} text tokens for each, in {count(int(found['cases']), 'case')}"


def subject_in_words(run: RunPayload) -> str:
    """Say which subject it is, what it offers, and how it was made."""
    made = f"{run['checkpoint']}/{run['device']}-{run['dtype']}-{run['attention']}"
    return ", ".join([run["subject"], *([run["level"]] if run["level"] else []), made])
