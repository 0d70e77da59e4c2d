"""Order of comparisons by their stages: inputs, what the model computes, then files."""

from collections.abc import Sequence

from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract import COMPARED
from pytest_dsocr.models import VISION
from pytest_dsocr.models.spec import PREFILL
from pytest_dsocr.records.names import ComparisonName
from pytest_dsocr.report.comparison_result import ComparisonResult

LOGITS, CACHE, TEXT = "logits", "cache", "text"
OF_TEXT = ("read", TEXT)
UP_TO_LOGITS = (*COMPARED, *VISION, PREFILL, LOGITS)
AFTER_INPUTS = (*VISION, PREFILL, CACHE, LOGITS, "tokens", TEXT)
"""Stages in the order of the data, after the inputs; ``read`` has the place of ``text``."""


def stage_of(what: str) -> str:
    """Return the stage of a comparison."""
    return ComparisonName.parse(what).stage


def rank(what: str) -> int:
    """Return the place of a comparison's stage in the order of the data: inputs come before all, files after all."""
    stage = TEXT if (stage := stage_of(what)) in OF_TEXT else stage
    return -1 if stage in COMPARED else AFTER_INPUTS.index(stage) if stage in AFTER_INPUTS else len(AFTER_INPUTS)


def is_of_model(what: str) -> bool:
    """Return whether a comparison is of a result that the model computes."""
    return 0 <= rank(what) < len(AFTER_INPUTS)


def wrong_of(comparisons: Sequence[ComparisonResult]) -> set[str]:
    """Return the names of comparisons that are WRONG."""
    return {one.what for one in comparisons if one.verdict == Verdict.WRONG}
