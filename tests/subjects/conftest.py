"""What the tests of subjects share."""

from __future__ import annotations

from pathlib import Path

import pytest

from suites.contract.pages import write_page


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for name in ("tiny", "halves"):
        write_page(name, folder)
    return folder
