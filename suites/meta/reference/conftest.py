"""What the suites of the reference share: whose files to run, and by which interpreter."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_dsocr.reference.environment.environment import find_environment

STAND_IN = Path(__file__).with_name("stand_in")


@dataclass(frozen=True)
class Home:
    """A folder with the vendor's files, or with the stand-in for them, and an interpreter that can run them."""

    folder: Path
    python: Path


def homes() -> dict[str, Home]:
    """Give the stand-in, and the vendor's own where ``DSOCR_VENDOR`` and ``DSOCR_VENDOR_ENV`` name them."""
    found = {"stand_in": Home(STAND_IN, Path(sys.executable))}
    if "DSOCR_VENDOR" in os.environ and "DSOCR_VENDOR_ENV" in os.environ:
        found["vendor"] = Home(Path(os.environ["DSOCR_VENDOR"]), find_environment(None))
    return found


@pytest.fixture(scope="module", params=homes())
def home(request: pytest.FixtureRequest) -> Home:
    return homes()[request.param]


@pytest.fixture(scope="session", autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of this process's own for temporary files, so that whatever is left behind is seen."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder


def worker_folders(temporary: Path) -> set[Path]:
    """The folders of workers that are alive, or have left theirs behind."""
    return set(temporary.glob("dsocr-worker-*"))
