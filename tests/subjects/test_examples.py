"""The examples of subjects on the shipped pages, compared with recordings of the vendor's code: what a user sees."""

import pytest

from pytest_dsocr.compare.verdict import Verdict
from tests.held import held


@pytest.mark.dsocr_slow
def test_one_box_instead_of_many_is_laid_to_a_read_that_goes_another_way() -> None:
    """The investigation that this project began with."""
    found = held("tests.subjects.examples.separate_prefill:SeparatePrefill", "figures_009")
    verdicts = {one.what: one.verdict for one in found.comparisons}
    wrong = {what for what, verdict in verdicts.items() if verdict is Verdict.WRONG}
    assert wrong == {"read", "text", "spans", "boxes"}
    assert verdicts["tokens"] is Verdict.MATCH
    assert found.divergence is not None
    assert found.divergence.first.what == "read"
    steps = len(found.exchange.expected.steps)
    assert f"disagrees with the subject's own {steps} steps" in found.divergence.first.measured
