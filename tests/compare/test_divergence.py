"""Where a case first breaks, and where the error begins that breaks it."""

from __future__ import annotations

from pytest_dsocr.compare.divergence import Divergence, first_divergence
from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.verdict import Comparison, Verdict, not_compared


def drifting(what: str, error: float, verdict: Verdict = Verdict.DRIFT) -> Comparison:
    return Comparison(what, verdict, "", error)


def found(*comparisons: Comparison) -> Divergence:
    divergence = first_divergence(comparisons)
    assert divergence is not None
    return divergence


def test_the_cause_is_looked_for_where_the_error_begins() -> None:
    """An epsilon of CLIP's stays below the limit in its first blocks."""
    begins = drifting("clip.page/0", 5e-5)
    divergence = found(drifting("sam.page", 2e-7), begins, drifting("clip.page/1", 2e-4, Verdict.WRONG))
    assert (divergence.first.what, divergence.begins, divergence.right) == ("clip.page/1", "clip.page/0", 2)
    assert divergence.preface.startswith(
        "it begins at clip.page/0 with a relative error of 5e-05, within the tolerance"
    )


def test_what_is_rounding_begins_nothing() -> None:
    """A bias that one block lacks is not laid to epsilons, which all blocks have."""
    divergence = found(drifting("clip.page/4", 1.9e-5), drifting("clip.page/5", 2e-3, Verdict.WRONG))
    assert divergence.begins == ""


def test_nothing_wrong_diverges_nowhere() -> None:
    assert first_divergence([drifting("sam.page", 1.0), not_compared("boxes", Reason.NOT_GIVEN)]) is None


def test_what_was_not_compared_is_not_counted_as_right() -> None:
    wrong = Comparison("text", Verdict.WRONG, "4 characters differ")
    right = [Comparison(what, Verdict.MATCH, "all") for what in ("logits", "tokens")]
    divergence = found(not_compared("boxes", Reason.NEITHER), *right, wrong, drifting("boxes", 1.0, Verdict.WRONG))
    assert (divergence.first, divergence.right, divergence.begins) == (wrong, 2, "")
