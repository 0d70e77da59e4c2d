"""What a comparison can say, and of several which is the gravest, and where a case first breaks."""

import pytest

from pytest_dsocr.compare.divergence import Divergence, first_divergence
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import SEVERITY, Comparison, Reason, Verdict, as_expected, equal, not_compared, worst


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


def test_where_correct_implementations_drift_nothing_begins() -> None:
    """A softmax in float16 in the decoder was laid to the projector, by a drift of torch's fused attention."""
    drifts = drifting("projector.page", 4e-7), drifting("prefill/0", 5e-6), drifting("prefill/1", 3e-5, Verdict.WRONG)
    names = [
        divergence.begins
        for limits in (tolerances("float32"), tolerances("float32", same_key=False), tolerances("bfloat16"))
        if (divergence := first_divergence(drifts, limits.ordinary))
    ]
    assert names == ["prefill/0", "", ""]


def test_nothing_wrong_diverges_nowhere() -> None:
    assert first_divergence([drifting("sam.page", 1.0), not_compared("boxes", Reason.NOT_GIVEN)]) is None


def test_what_was_not_compared_is_not_counted_as_right() -> None:
    wrong = Comparison("text", Verdict.WRONG, "4 characters differ")
    right = [Comparison(what, Verdict.MATCH, "all") for what in ("logits", "tokens")]
    divergence = found(not_compared("boxes", Reason.NEITHER), *right, wrong, drifting("boxes", 1.0, Verdict.WRONG))
    assert (divergence.first, divergence.right, divergence.begins) == (wrong, 2, "")


def test_the_gravest_of_several_counts() -> None:
    assert SEVERITY == ("NOT-COMPARED", "MATCH", "DRIFT", "TIE-FLIP", "WRONG")
    assert worst([]) == "NOT-COMPARED"
    for k, verdict in enumerate(SEVERITY):
        assert worst(Comparison("x", one, "") for one in SEVERITY[: k + 1][::-1]) is verdict


def test_exact_things_match_or_are_shown_side_by_side() -> None:
    for found, verdict in ((84, Verdict.MATCH), (83, Verdict.WRONG), (None, Verdict.WRONG)):
        one, other = as_expected("length", found, 84, "the prompt's"), equal("length", found, 84, "the prompt's")
        assert one.verdict is other.verdict is verdict
        assert verdict is Verdict.MATCH or (str(found) in one.measured and "84" in one.measured)
        assert verdict is Verdict.MATCH or (str(found) in other.measured and "84" in other.measured)


@pytest.mark.parametrize("verdict", Verdict)
def test_only_what_is_wrong_or_was_promised_and_not_compared_fails(verdict: Verdict) -> None:
    allowed = {Reason.NEITHER, Reason.NOT_OFFERED} if verdict is Verdict.NOT_COMPARED else set()
    for reason in (None, *Reason):
        passes = Comparison("x", verdict, "", reason=reason).passes
        assert passes is (reason in allowed or verdict not in (Verdict.WRONG, Verdict.NOT_COMPARED))
