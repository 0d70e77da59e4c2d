"""The pytest plugin's hooks. Import stays light: nothing heavier than pytest is loaded here."""

from __future__ import annotations

import pytest

import pytest_dsocr


def pytest_report_header(config: pytest.Config) -> str:
    """Say which plugin is running, and from where."""
    return f"dsocr: pytest-dsocr {pytest_dsocr.__version__} from {pytest_dsocr.__path__[0]}"
