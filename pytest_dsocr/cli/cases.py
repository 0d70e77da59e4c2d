"""The cases that the pages, presets and prompts on the command line make up."""

from __future__ import annotations

from argparse import Namespace

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.case import Case
from pytest_dsocr.pages.named import Cases, make_cases


def cases_of(options: Namespace) -> list[Case]:
    """Give every page in every preset with every prompt that ``options`` name, each once.

    Raises:
        DsocrError: if a page cannot be opened.
    """
    cases = found_by(options)
    if cases.bad:
        raise DsocrError(cases.bad[0].why)
    return list(cases.good)


def found_by(options: Namespace) -> Cases:
    """Give the same, together with the pages that cannot be opened."""
    return make_cases(options.pages, options.prompts, options.presets, options.max_new_tokens)
