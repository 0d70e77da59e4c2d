"""Suites that run the vendor's real code, in an environment that has transformers 4.46 (``tox -e vendor``)."""

import os
from pathlib import Path

FOLDER = os.environ.get("DSOCR_VENDOR", "")

# Without the vendor's files there is nothing to compare with; tox -e vendor then fails for having run no test.
collect_ignore_glob = [] if FOLDER else ["test_*.py"]


def vendor_folder() -> Path:
    """The folder with the vendor's files that the user named."""
    return Path(FOLDER)
