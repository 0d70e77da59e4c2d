"""A part of a run's pages: every n-th of them, for one machine of several."""

from __future__ import annotations

from typing import NamedTuple

MOST = 100_000


class Shard(NamedTuple):
    """One part of several, counted from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def read(cls, text: str) -> Shard:
        """Read ``i/n``; raise ``ValueError`` where it is no part of anything."""
        number, of = (int(part) if part.isdecimal() else 0 for part in text.split("/"))
        if not 1 <= number <= of <= MOST:
            raise ValueError(text)
        return cls(number, of)

    @property
    def is_first(self) -> bool:
        """Whether what belongs to no page is run here."""
        return self.number == 1

    def has(self, index: int) -> bool:
        """Return whether the item at ``index`` of the full list, from 0 on, is in this shard."""
        return index % self.of == self.number - 1

    def place(self, index: int, together: int) -> int:
        """Return the index in the full list of the item at ``index`` in this shard; groups of ``together`` stay so."""
        group, within = divmod(index, together)
        return (group * self.of + self.number - 1) * together + within
