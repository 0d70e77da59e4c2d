"""The one exception that this project raises on bad input."""

from pytest_dsocr.foundation.printable import printable


class DsocrError(Exception):
    """Bad input, or a machine that lacks what was asked for.

    The message is one sentence: what was wrong, then what to do about it. Names of files in it, and what others said,
    cannot steer the terminal that it is shown on.
    """

    def __str__(self) -> str:
        return printable(super().__str__())
