"""Suites that run the vendors' real code, in an environment that has transformers 4.46 (``tox -e vendor``)."""

import os
from pathlib import Path

from pytest_dsocr.families import DEFAULT, FAMILIES
from pytest_dsocr.families.family import Family


def folder_named(family: Family) -> str:
    """What ``DSOCR_VENDOR`` says, of a family that is not the first ``DSOCR_VENDOR_`` and its name; may be empty."""
    return os.environ.get("DSOCR_VENDOR" if family is DEFAULT else f"DSOCR_VENDOR_{family.name.upper()}", "")


def _family_of(test: Path) -> Family:
    return FAMILIES.get(test.stem.removeprefix("test_"), DEFAULT)


# Without the vendor's files there is nothing to compare with; tox -e vendor then fails for having run no test.
collect_ignore = [path.name for path in Path(__file__).parent.glob("test_*.py") if not folder_named(_family_of(path))]


def vendor_folder(family: Family = DEFAULT) -> Path:
    """The folder with the vendor's files that the user named."""
    return Path(folder_named(family))
