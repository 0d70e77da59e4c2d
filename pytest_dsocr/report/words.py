"""What a report says in words: counts, sides, and text of unknown origin made fit for a terminal's line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from pytest_dsocr.compare.verdict import SEVERITY
from pytest_dsocr.printable import plain as plain

if TYPE_CHECKING:
    from pytest_dsocr.report.payload import CasePayload, RunPayload

COLUMNS, MARGIN = 120, 16
HASH_CHARACTERS = 12
BY_SESSION = "by the session, equal to the vendor's code where recorded"
"""Said of every verdict that rests on the session's word."""


def fit(text: str, columns: int = COLUMNS) -> str:
    """Give ``text`` on one line of at most ``columns``."""
    shown = plain(text)
    return shown if len(shown) <= columns else shown[: columns - 3] + "..."


def told(what: str, text: str, most_lines: int = 4) -> Iterator[str]:
    """Yield ``text`` beside ``what``, on as many lines as it needs, up to ``most_lines``."""
    lines = wrap(plain(text), COLUMNS - MARGIN, break_on_hyphens=False, max_lines=most_lines, placeholder="...")
    for k, line in enumerate(lines or [""]):
        yield f"{'' if k else what:<{MARGIN}}{line}"


def near(path: str) -> str:
    """Give ``path`` as it is reached from here, where it lies below."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def count(number: int, noun: str) -> str:
    """Give ``1 case`` and ``2 cases``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def counts(by_verdict: Mapping[str, int]) -> str:
    """Give ``1 WRONG, 4 DRIFT, 10 MATCH; 2 not made``, the gravest first."""
    *made, not_made = [by_verdict.get(verdict, 0) for verdict in SEVERITY[::-1]]
    told_of = ", ".join(f"{n} {verdict}" for n, verdict in zip(made, SEVERITY[::-1], strict=False) if n)
    return "; ".join(part for part in (told_of, f"{not_made} not made" if not_made else "") if part)


def listed(names: Sequence[str], shown: int = 6) -> str:
    """Give the first of ``names``, and how many more there are."""
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")


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
