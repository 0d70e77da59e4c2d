"""A measured relation between the subject's values and the expected ones."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ErrorPanel:
    """Errors of a part of a tensor, laid out as on the page."""

    title: str
    rows: tuple[str, ...]
    """A digit of :mod:`pytest_dsocr.describe.error_digits` for each token or group of values."""
    columns: int = 1
    """Views next to each other, as the crops of a page are."""
    stacked: int = 1
    """Views below each other."""


@dataclass(frozen=True)
class Description:
    """The simplest relation found between the subject's values and the expected ones, with its evidence."""

    kind: str
    """Id of the relation, such as ``inserted`` or ``shifted``."""
    text: str
    """The relation in words, with its numbers."""
    share: float
    """Share of the difference that it explains, from 0 to 1, measured where it was not fitted."""
    cases: int = 1
    """Number of values, rows or tokens that it was verified on."""
    places: tuple[ErrorPanel, ...] = ()
    """Errors of the described tensor by place."""

    @property
    def explains(self) -> bool:
        """Whether it explains at least :data:`ENOUGH` of the difference."""
        return self.share >= ENOUGH

    @property
    def says_how(self) -> bool:
        """Whether it says how values differ, and not only where."""
        return self.explains and self.kind not in PLACES


LEFT = "a part of the difference is left"
"""Words of a description that explains much, and says what it leaves."""
OF_STATE = AS_BEFORE, AS_OTHER_PAGE = ("state", "other-page")
"""Kinds of descriptions that say that a page reads otherwise for what was read before."""
PLACES = ("confined", "steps")
"""Kinds of descriptions that say only where values differ."""
ENOUGH = 0.9
"""Share of a difference from which on a relation describes it."""
