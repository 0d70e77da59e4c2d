"""With text alone, that the rule for n-grams is off shows on the page that is asked for it."""

from __future__ import annotations

from pathlib import Path

from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.engine import Engine
from suites.cache.test_reading import AT_TEXT, LOOPING, _repeated
from suites.cache.walk import QUICK
from suites.contract.pages import write_page


def test_a_reader_without_the_rule_is_found_by_its_text(tmp_path: Path) -> None:
    session = Engine.from_checkpoint("mini", engine="fast")
    inputs = session.prepare(write_page(LOOPING, tmp_path), preset=QUICK)
    for size, verdict in ((20, Verdict.MATCH), (0, Verdict.WRONG)):
        text = session.run_prepared(inputs, max_new_tokens=AT_TEXT, no_repeat_ngram_size=size).text
        assert _repeated(session.tokenizer.encode(text)).verdict is verdict
