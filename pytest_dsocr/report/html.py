"""``index.html``: the result as a page that opens without a network, made of the same values as the JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_dsocr.compare.diff import Side
from pytest_dsocr.compare.verdict import Reason
from pytest_dsocr.foundation.files import templates, write_whole
from pytest_dsocr.foundation.words import count, short
from pytest_dsocr.report.budget import two_digits
from pytest_dsocr.report.causes import behind, in_words, label
from pytest_dsocr.report.file import INDEX_NAME
from pytest_dsocr.report.payload import Number, number
from pytest_dsocr.report.times import rows
from pytest_dsocr.report.words import BY_SESSION, counts, first_wrong, reference_in_words, subject_in_words

TEMPLATE = "index.html.j2"
TAG_OF = {Side.REFERENCE: "del", Side.SUBJECT: "ins"}
"""The element that shows what only one side of a diff has."""


def write_index(result: Mapping[str, Any], folder: Path) -> Path:
    """Write the page of a result as JSON values beside the pictures that it shows; raise as ``write_whole``."""
    return write_whole(folder / INDEX_NAME, html(result))


def html(result: Mapping[str, Any]) -> str:
    """Return the page. Everything in the result is escaped, whatever a model wrote or a page is called."""
    environment = templates(Path(__file__).parent)
    environment.filters |= {"in_words": counts, "error": _error, "of": count, "short": short}
    environment.filters |= {"cause": in_words, "label": label, "behind": behind, "two": two_digits, "share": _share}
    run = result["run"]
    sides = (reference_in_words(run), subject_in_words(run)) if run else None
    return environment.get_template(TEMPLATE).render(
        result=result,
        sides=sides,
        times=list(rows(result["perf"])) if result.get("perf") else [],
        not_offered=Reason.NOT_OFFERED,
        tag_of=TAG_OF,
        by_session=BY_SESSION,
        tests={test["nodeid"]: test for test in result["tests"]},
        behind={case for one in result["causes"] for case in one["cases"][1:]},
        first_wrong=first_wrong,
    )


def _share(value: Number, of: Iterable[Number]) -> float:
    """Return a value in per cent of the largest, for the width of a bar; 0 of one that has none."""
    largest = max(map(number, of), default=0.0)
    share = 100 * number(value) / largest if 0 < largest < math.inf else 0.0
    return min(max(share, 0.0), 100.0)


def _error(value: float | str | None) -> str:
    return f"{value:.1e}" if isinstance(value, float | int) else value or ""
