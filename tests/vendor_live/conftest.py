"""Suites that run the vendors' real code, in an environment that has transformers 4.46 (``tox -e vendor``)."""

import os
from pathlib import Path

from pytest_dsocr.models import MODELS
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.spec import ModelSpec


def vendor_folder(family: ModelSpec = DEEPSEEK_OCR) -> Path:
    """Return the folder with the vendor's files that the user named; a later family's by the family's name."""
    return Path(
        os.environ.get("DSOCR_VENDOR" if family is DEEPSEEK_OCR else f"DSOCR_VENDOR_{family.name.upper()}", "absent")
    )


def _family_of(test: Path) -> ModelSpec:
    """Return the model whose name is in a test's; the longest, since one name begins with another."""
    named = (one for one in MODELS.values() if one.name in test.stem)
    return max(named, key=lambda one: len(one.name), default=DEEPSEEK_OCR)


# Without the vendor's files there is nothing to compare with; tox -e vendor then fails for having run no test.
collect_ignore = [
    test.name for test in Path(__file__).parent.glob("test_*.py") if not vendor_folder(_family_of(test)).is_dir()
]
