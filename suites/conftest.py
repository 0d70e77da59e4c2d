"""The suites need the plugin; where it is not there, say so before anything else fails for want of it."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to go on without the plugin."""
    if not hasattr(config.option, "dsocr_subject"):
        raise pytest.UsageError(
            "these suites need the plugin pytest-dsocr; leave out -p no:dsocr, "
            "or, where plugins are not autoloaded, add -p dsocr"
        )
