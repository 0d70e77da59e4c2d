"""What was made last of a case or of its limits, kept for as long as the same sides are asked about the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """Holds one thing, for what is made of a case may be large; where it could not be made, the error instead.

    A fixture of the session's would be kept by its case alone, and be another subject's where a folder of tests has a
    subject of its own.
    """

    def __init__(self) -> None:
        self._of: tuple[object, tuple[object, ...]] | None = None
        self._made: list[T] = []
        self._error: Exception | None = None

    def get(self, make: Callable[[], T], case: object, *sides: object) -> T:
        """Give what ``make`` gave of a ``case`` equal to this and these very ``sides``, or raise what it raised."""
        if not self._is_of(case, sides):
            self._of, self._error = (case, sides), None
            self._made.clear()  # before the next is made, so that there is room for it
            try:
                self._made.append(make())
            except Exception as error:
                self._error = error
        if self._error is not None:
            raise self._error
        return self._made[0]

    def made(self, case: object, side: object) -> T | None:
        """Give what was made last, if that was of ``case`` and ``side`` was the first of its sides; None if not."""
        if self._of is None or not self._made or self._of[0] != case or self._of[1][0] is not side:
            return None
        return self._made[0]

    def _is_of(self, case: object, sides: tuple[object, ...]) -> bool:
        if self._of is None:
            return False
        of_case, of_sides = self._of
        return of_case == case and all(mine is other for mine, other in zip(of_sides, sides, strict=True))
