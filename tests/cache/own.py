"""Ways of a subject in float32, as the suite's fixtures give them, without a run."""

from typing import Any

from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.subjects.checked import CheckedSubject
from suites.cache.ways import TextWays, Ways

EXACT = Ways(tolerances("float32"), frozenset(), None)


def text_ways(subject: Any, tokenizer: TextTokenizer) -> TextWays:
    """Return what compares the texts of a subject with stages."""
    return TextWays(CheckedSubject(subject), _nobody, tokenizer, EXACT.limits, None)


def _nobody() -> CheckedSubject:
    raise AssertionError("these subjects have steps of their own")
