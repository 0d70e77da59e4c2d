"""The cases that a command line names."""

from __future__ import annotations

from argparse import Namespace

from pytest_dsocr.cli.vendor_pages import found_by
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.case import Case


def cases_of(options: Namespace) -> list[Case]:
    """The cases of ``dsocr vendor record``; raises ``DsocrError`` if a page cannot be opened."""
    cases = found_by(options)
    if cases.bad:
        raise DsocrError(cases.bad[0].why)
    return list(cases.good)
