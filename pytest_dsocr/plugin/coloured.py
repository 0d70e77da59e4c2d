"""What pytest shows of a failing test: the plain text that its report carries, with diffs coloured on a terminal.

A report's text is plain, for it may come from a pytest-xdist worker and go to a file. The process that has the terminal
adds the colours, as pytest's own writer does or does not: --color, NO_COLOR and the like are heard there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_dsocr.compare.diff import Line


@dataclass(frozen=True)
class Crash:
    """Where a test failed, and the message of which pytest's short summary shows the first line."""

    path: str
    lineno: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.lineno}: {self.message}"


@dataclass(frozen=True)
class ColouredText:
    """A failure's text, under the names by which pytest asks for one."""

    text: str
    reprcrash: Any
    by_line: Mapping[str, Line] = field(repr=False)
    """The pieces of the lines that are coloured."""

    def __str__(self) -> str:
        return self.text

    def toterminal(self, writer: Any) -> None:
        """Write the text as pytest's terminal writer allows."""
        from pytest_dsocr.report.failure import MARKUP

        for line in self.text.splitlines():
            for piece in self.by_line.get(line, ()):
                writer.write(str(piece), **MARKUP[piece.side])
            writer.line("" if line in self.by_line else line)


def colour(report: pytest.TestReport) -> None:
    """Colour what the report of a failing test of ours says, and give pytest's short summary a line of it."""
    if not report.failed or report.longrepr is None:
        return
    from pytest_dsocr.report.failure import coloured_pieces

    by_line = coloured_pieces(report.__dict__["dsocr"].get("comparisons", ()))
    told = isinstance(report.longrepr, str)
    if told or by_line:
        path, line, _ = report.location
        crash = (
            Crash(path, (line or 0) + 1, str(report.longrepr)) if told else getattr(report.longrepr, "reprcrash", None)
        )
        vars(report)["longrepr"] = ColouredText(str(report.longrepr).rstrip("\n"), crash, by_line)
