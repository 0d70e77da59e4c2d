"""From pages, presets and prompts on the command line to cases."""

from __future__ import annotations

from argparse import Namespace

from pytest_dsocr.case import Case
from pytest_dsocr.pages import make_cases


def cases_of(options: Namespace) -> list[Case]:
    """Give every page in every preset with every prompt that ``options`` name, each once."""
    return make_cases(options.pages, options.prompts, options.presets, options.max_new_tokens)
