"""The choice among relations: the first that explains enough, as they come in the order of their length."""

from collections.abc import Iterable

from pytest_dsocr.describe.description import Description


def simplest(found: Iterable[Description]) -> Description | None:
    """Return the first relation that explains enough, else the last one, an anatomy; None if there is none."""
    last = None
    for last in found:
        if last.explains:
            break
    return last
