"""The command line, called again and again."""

import pytest


@pytest.fixture(autouse=True)
def _started_at_once(warm: None) -> None:
    """By the Python that has imported torch already."""
