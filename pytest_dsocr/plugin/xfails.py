"""The ledger of known failures: a test and a reason a line. Each must keep failing while listed (strict xfail).

suites/parity/test_case.py::test_boxes[form_015-gundam-markdown]  # the last row's box is one unit lower
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_dsocr.foundation.errors import DsocrError

LINE = re.compile(r"(?P<test>.*?)(?:\s+#\s*(?P<reason>.*))?")


@dataclass(frozen=True)
class Ledger:
    """Tests that are known to fail, and why."""

    path: Path
    reasons: Mapping[str, str]
    """By the last parts of a test's id, so that a line fits a checkout and an installation."""

    def apply(self, items: Iterable[pytest.Item]) -> tuple[str, ...]:
        """Mark the listed tests as strict xfails; give the listed names that are not among ``items``."""
        unmatched = dict(self.reasons)
        for item in items:
            for test in filter(self.reasons.__contains__, _endings(item)):
                item.add_marker(pytest.mark.xfail(reason=self.reasons[test], strict=True))
                unmatched.pop(test, None)
        return tuple(unmatched)


def read_ledger(path: Path) -> Ledger:
    """Read a ledger: a line each, the end of a test's id, white space, ``#`` and a reason.

    Empty lines, and lines that begin with ``#``, are ignored.

    Raises:
        DsocrError: if the file cannot be read, a line has no reason, or a test is listed twice.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DsocrError(f"{path} cannot be read as a list of known failures ({error}); give a text file") from error
    reasons: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if line and not line.startswith("#"):
            test, reason = _read_line(f"{path}, line {number}", line)
            if test in reasons:
                raise DsocrError(f"{path}, line {number}: {test} is listed before; keep one of the two lines")
            reasons[test] = reason
    return Ledger(path, reasons)


def _read_line(place: str, line: str) -> tuple[str, str]:
    found = LINE.fullmatch(line)
    if found is None or not found["reason"]:
        raise DsocrError(f"{place}: {line.rstrip('# ')} has no reason; write one behind it, after '  # '")
    return found["test"], found["reason"]


def _endings(item: pytest.Item) -> list[str]:
    """Give a test's file and name, and what is left of them after each folder, the file and the class.

    The path counts, not the id: an id begins where pytest was called, and with ``--pyargs`` inside the package.
    """
    whole = "::".join((item.path.as_posix(), *item.nodeid.split("::")[1:]))
    return [whole, *(whole[cut.end() :] for cut in re.finditer("/|::", whole.partition("[")[0]))]
