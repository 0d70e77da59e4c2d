"""Verdicts of comparisons, the first break of a case, and limits by dtype."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.compare.divergence import Divergence, first_divergence
from pytest_dsocr.compare.tolerances import BY_DTYPE, NAMES, tolerances
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
    allowed = {Reason.NEITHER, Reason.NOT_OFFERED, Reason.NOT_BY_BLOCK} if verdict is Verdict.NOT_COMPARED else set()
    for reason in (None, *Reason):
        passes = Comparison("x", verdict, "", reason=reason).passes
        assert passes is (reason in allowed or verdict not in (Verdict.WRONG, Verdict.NOT_COMPARED))


def test_the_coarser_of_two_dtypes_decides() -> None:
    for *dtypes, coarser in (
        ("float32", "float32", "float32"),
        ("float32", "float16", "float16"),
        ("bfloat16", "float32", "bfloat16"),
        ("float16", "bfloat16", "bfloat16"),
    ):
        assert tolerances(*dtypes) is BY_DTYPE[coarser]
        assert 2.0 ** -BY_DTYPE[coarser].mantissa_bits == torch.finfo(getattr(torch, coarser)).eps
    with pytest.raises(DsocrError, match="float64"):
        tolerances("float32", "float64")


def test_vision_has_a_limit_of_its_own_in_bfloat16_until_one_is_given_for_all_seams() -> None:
    limits = tolerances("bfloat16")
    names = ("sam.page/3", "vision_fusion", "prefill/0", "prefill")
    assert [limits.of_seam(name) for name in names] == [0.02, 0.02, 0.03, 0.08]
    assert [limits.but({"seam": 0.05}).of_seam(name) for name in names] == [0.05, 0.05, 0.05, 0.08]
    assert [limits.but({"seam": 0.01}).of_seam(name) for name in names] == [0.01, 0.01, 0.01, 0.08]


def test_a_ulp_is_the_distance_to_the_next_number() -> None:
    for limits in BY_DTYPE.values():
        epsilon = 2.0**-limits.mantissa_bits
        assert [limits.ulp(one) for one in (1.0, -6.0, 0.0, 0.3)] == [epsilon, 4 * epsilon, epsilon, epsilon / 4]
        assert limits.ulp(5e-324) > 0.0


def test_outputs_are_exact_under_one_key_and_may_differ_a_little_between_two() -> None:
    same, between = tolerances("float32", "bfloat16"), tolerances("float32", "bfloat16", same_key=False)
    assert (same.boxes, same.coords, same.text) == (0, 0.0, 0.0)
    assert (between.boxes, between.coords, between.text) == (1, 0.02, 0.0)
    assert between.logits == 0.15, "of the worst of some 200 steps, as measured"
    assert replace(between, boxes=0, coords=0.0, logits=same.logits, usual=same.usual) == same
    exact = tolerances("float32", same_key=False)
    assert replace(exact, boxes=0, coords=0.0, usual=2e-6) == tolerances("float32")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("box", 1), ("mantissa_bits", 1), ("boxes", -1), ("boxes", 1.0), ("boxes", True), ("ties", "4")),
        *(("coords", -0.1), ("coords", math.nan), ("text", math.inf), ("seam", None), ("logits", False)),
    ],
)
def test_what_is_no_tolerance_is_refused(name: str, value: Any) -> None:
    with pytest.raises(DsocrError, match=name):
        tolerances("float32").but({name: value})


def test_what_is_a_tolerance_is_taken() -> None:
    values: dict[str, Any] = {"boxes": 2, "coords": 0.5, "text": 1, "seam": 0.1, "logits": 0.2, "ties": 8}
    values |= {"rounding": 1.5}
    exact = tolerances("float32")
    assert exact.but(values) == replace(exact, **values, vision=math.inf)
    assert {*values} == {*NAMES}
