"""What a report says in words: counts, sides, and text of unknown origin made fit for a terminal's line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_dsocr.compare.verdict import SEVERITY

if TYPE_CHECKING:
    from pytest_dsocr.report.payload import RunPayload

COLUMNS = 120
HASH_CHARACTERS = 12


def fit(text: str, columns: int = COLUMNS) -> str:
    """Give ``text`` on one line of at most ``columns``, what would steer a terminal as escapes."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return shown if len(shown) <= columns else shown[: columns - 3] + "..."


def count(number: int, noun: str) -> str:
    """Give ``1 case`` and ``2 cases``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def counts(by_verdict: Mapping[str, int]) -> str:
    """Give ``1 WRONG, 4 DRIFT, 10 MATCH``, the gravest first."""
    return ", ".join(f"{by_verdict[verdict]} {verdict}" for verdict in SEVERITY[::-1] if by_verdict.get(verdict))


def listed(names: Sequence[str], shown: int = 6) -> str:
    """Give the first of ``names``, and how many more there are."""
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")


def reference_in_words(run: RunPayload) -> str:
    """Say which reference it is, how it is keyed, and which of the vendor's files it is of."""
    made = run["provenance"]
    how = f"recorded on {made['date']}" if run["reference"] == "recorded" else "live"
    main_file = next(iter(made["vendor_sha256"].values()), "unknown")[:HASH_CHARACTERS]
    return f"{how}, {run['key']}, vendor's file {main_file} ({run['where']})"


def subject_in_words(run: RunPayload) -> str:
    """Say which subject it is, what it offers, and how it was made."""
    made = f"{run['checkpoint']}/{run['device']}-{run['dtype']}-{run['attention']}"
    return ", ".join([run["subject"], *([run["level"]] if run["level"] else []), made])
