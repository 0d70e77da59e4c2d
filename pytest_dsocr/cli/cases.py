"""From pages, presets and prompts on the command line to cases."""

from __future__ import annotations

from argparse import Namespace

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.case import Case
from pytest_dsocr.pages.named import Cases, make_cases


def cases_of(options: Namespace) -> list[Case]:
    """Give every page in every preset with every prompt that ``options`` name, each once.

    Raises:
        DsocrError: where a page cannot be had.
    """
    cases = found_by(options)
    if cases.bad:
        raise DsocrError(cases.bad[0].why)
    return list(cases.good)


def found_by(options: Namespace) -> Cases:
    """Give the same, and beside them the pages that cannot be had."""
    return make_cases(options.pages, options.prompts, options.presets, options.max_new_tokens)
