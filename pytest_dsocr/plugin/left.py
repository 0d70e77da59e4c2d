"""Which tests were found and are not run, selected against or taken out by a hook, and which pages were to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dsocr.plugin.stash import ALL_CASES, ALL_PAGES, COLLECTED

if TYPE_CHECKING:
    import pytest

    from pytest_dsocr.report.payload import LeftPayload

SELECTING = {"keyword": "-k", "markexpr": "-m", "deselect": "--deselect", "lf": "--lf", "stepwise": "--sw"}
"""Options of pytest's, as it keeps and as it takes them."""
NAMED = 100
"""How many tests are named."""


def left_out(session: pytest.Session) -> LeftPayload:
    """Say which of our tests were found and are not among those to be run, but for what our own options leave out."""
    found, kept = session.config.stash.get(COLLECTED, {}), {item.nodeid for item in session.items}
    names = [name for name in found if name not in kept]
    values = {flag: getattr(session.config.option, name, None) for name, flag in SELECTING.items()}
    by = [flag if value is True else f"{flag} {value}" for flag, value in values.items() if value]
    return {
        "tests": len(names),
        "of": len(found),
        "by": by if names else [],
        "names": names[:NAMED],
        "listed": list(dict.fromkeys(case.page_name for case in session.config.stash.get(ALL_CASES, []))),
        "whole": session.config.stash.get(ALL_PAGES, []),
    }
