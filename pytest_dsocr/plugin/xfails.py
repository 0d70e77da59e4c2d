"""Ledger of known failures: a test and a reason a line. Each must keep failing while listed (strict xfail).

suites/parity/test_case.py::test_boxes[form_015-gundam-markdown]  # until 2027-01-31: the last row's box is lower

After its date a line excuses nothing, and the run reports that.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.reading import Format
from pytest_dsocr.base.words import shown
from pytest_dsocr.timing.limits import SLOW_DOWN

LEDGERS = Format(str, "give a text file, a known failure a line", most_bytes=2**24)
LINE = re.compile(r"(?P<test>.*?)(?:\s+#\s*(?:until\s+(?P<until>[^\s:]+):\s*)?(?P<reason>.*))?")


@dataclass(frozen=True)
class Known:
    """Reason of a known failure, and its last day; None without an end."""

    reason: str
    until: date | None = None

    def is_over(self, today: date) -> bool:
        """Return whether the last day is over."""
        return self.until is not None and today > self.until


@dataclass(frozen=True)
class Ledger:
    """Known failures by the end of the tests' ids, which is equal in a checkout and in a wheel."""

    path: Path
    known: Mapping[str, Known]
    today: date = field(default_factory=lambda: datetime.now(UTC).date())

    def apply(self, items: Iterable[pytest.Item]) -> tuple[str, ...]:
        """Mark the listed tests as strict xfails, unless the date is over. Return lines that match no test."""
        unmatched = dict(self.known)
        for item in items:
            for test in filter(self.known.__contains__, _endings(item)):
                if not self.known[test].is_over(self.today):
                    item.add_marker(pytest.mark.xfail(reason=self.known[test].reason, strict=True))
                unmatched.pop(test, None)
        return tuple(unmatched)

    def slow_downs(self) -> dict[str, str]:
        """Return the quantities with an accepted slowdown today, each with its reason."""
        found = ((SLOW_DOWN.search(test), one) for test, one in self.known.items() if not one.is_over(self.today))
        return {test[1]: f"{one.reason} (until {one.until or 'further notice'})" for test, one in found if test}

    def over(self) -> list[str]:
        """Return a message for each line with a past date."""
        return [
            f"{test} was known to fail until {one.until} ({one.reason}), which is over: fix it, or give it a later "
            f"date in {self.path}"
            for test, one in self.known.items()
            if one.is_over(self.today)
        ]


def read_ledger(path: Path) -> Ledger:
    """Read a ledger with lines of a test id's end, white space, ``#``, ``until DATE:`` and a reason.

    The date is in ISO 8601. It is the last day on which the line counts, and a line without one counts for ever. Empty
    lines and comments (``#``) are ignored.

    Raises:
        DsocrError: if the file cannot be read, a line has no reason or a bad date, or a test is listed twice.
    """
    known: dict[str, Known] = {}
    for number, line in LEDGERS.read_lines(path):
        test, one = _read_line(f"{path}, line {number}", line)
        if test in known:
            raise DsocrError(f"{path}, line {number}: {test} is listed before; keep one of the two lines")
        known[test] = one
    return Ledger(path, known)


def _read_line(place: str, line: str) -> tuple[str, Known]:
    found = LINE.fullmatch(line)
    if found is None or not found["reason"]:
        raise DsocrError(f"{place}: {shown(line.rstrip('# '))} has no reason; write one after '  # '")
    try:
        until = date.fromisoformat(found["until"]) if found["until"] else None
    except ValueError:
        message = f"{place}: {found['until']!r} is no date; write one such as until 2027-01-31: reason"
        raise DsocrError(message) from None
    return found["test"], Known(found["reason"], until)


def _endings(item: pytest.Item) -> list[str]:
    """Return a test's file and name, and each ending of them that starts after a folder, the file or the class.

    They come from the path, because ids are relative to pytest's folder, or to the package with ``--pyargs``.
    """
    whole = "::".join((item.path.as_posix(), *item.nodeid.split("::")[1:]))
    return [whole, *(whole[cut.end() :] for cut in re.finditer("/|::", whole.partition("[")[0]))]
