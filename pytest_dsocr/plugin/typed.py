"""The options that the user typed, in the form in which to type them again."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pytest_dsocr.plugin.options import OPTIONS
from pytest_dsocr.plugin.xdist.scheduling import SPREAD


def typed_options(config: pytest.Config) -> list[str]:
    """Give what the user typed behind ``pytest``, without the tests to run; our flags joined to their values."""
    ours = (*config.args, SPREAD)  # one test is not spread
    return [word for word in joined(map(str, config.invocation_params.args)) if word not in ours]


def joined(words: Iterable[str]) -> list[str]:
    """Give ``--dsocr-pages=scans`` for ``--dsocr-pages scans``.

    A path that stands apart from a plugin's flag pytest takes for a test to run, and its project for the root.
    """
    flags = {option.flag for option in OPTIONS if not option.is_switch}
    found: list[str] = []
    for word in words:
        if found and found[-1] in flags:
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found
