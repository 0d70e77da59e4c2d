"""Ways of a subject in float32, as the suite's fixtures give them, without a run."""

from typing import Any

from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.engine import EngineSubject
from suites.cache.ways import TextWays, Ways

EXACT = Ways(tolerances("float32"), frozenset(), None)


def text_ways(subject: Any, tokenizer: TextTokenizer, engine: Engine[Any] | None = None) -> TextWays:
    """Return what compares the texts of a subject. Subjects without stages need an engine that follows them."""

    def follower() -> CheckedSubject:
        assert engine is not None, "these subjects have steps of their own"
        return CheckedSubject(EngineSubject(engine))

    return TextWays(CheckedSubject(subject), follower, tokenizer, EXACT.limits, None)
