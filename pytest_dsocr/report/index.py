"""``index.html``: the run's result as a page that opens without a network, made of the same values as the JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.foundation.sealed import write_whole
from pytest_dsocr.report.file import INDEX_NAME
from pytest_dsocr.report.words import BY_SESSION, counts, reference_in_words, subject_in_words

TEMPLATE = "index.html.j2"


def write_index(result: Mapping[str, Any], folder: Path) -> Path:
    """Write the page beside the pictures that it shows, whole or not at all.

    Args:
        result: what ``RunResult.to_json`` gives.
        folder: the run's.

    Raises:
        DsocrError: where the disk does not take it.
    """
    write_whole(folder / INDEX_NAME, html(result).encode("utf-8", "replace"))
    return folder / INDEX_NAME


def html(result: Mapping[str, Any]) -> str:
    """Give the page; all of the result is text in it, whatever a model wrote or a page is called."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"in_words": counts, "error": _error}
    run = result["run"]
    sides = (reference_in_words(run), subject_in_words(run)) if run else None
    return environment.get_template(TEMPLATE).render(
        result=result, sides=sides, not_offered=Reason.NOT_OFFERED, by_session=BY_SESSION
    )


def _error(value: float | str | None) -> str:
    return f"{value:.1e}" if isinstance(value, float | int) else value or ""
