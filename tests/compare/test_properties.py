"""Properties of every comparer, whatever its input."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from rapidfuzz.distance import Levenshtein

from pytest_dsocr.compare.boxes import compare_boxes
from pytest_dsocr.compare.divergence import first_divergence
from pytest_dsocr.compare.output import Tie, compare_output
from pytest_dsocr.compare.seams import compare_seam
from pytest_dsocr.compare.text import compare_content, compare_text
from pytest_dsocr.compare.tokens import compare_best, compare_logits, compare_tokens
from pytest_dsocr.compare.tolerances import Tolerances, tolerances
from pytest_dsocr.compare.verdict import SEVERITY, Comparison, Reason, Verdict
from pytest_dsocr.contract.markup import UNITS, Box
from pytest_dsocr.records.reference_result import Artefact, Best, Output, Seam, SpanSeen, Step
from pytest_dsocr.records.subject_result import ForcedStep
from tests.compare.made import reading
from tests.contract.fuzzing import fuzz

EXACT = tolerances("float32")

briefly = settings(max_examples=80)

UNIT = st.integers(0, UNITS)
BOXES = st.builds(Box, UNIT, UNIT, UNIT, UNIT)
ANY_BOXES = st.builds(Box, *[st.floats(allow_nan=True, allow_infinity=True)] * 4)
LABELS = st.sampled_from(["title", "text", "image"])
TEXTS = st.text(max_size=40) | st.text("ab 1\n", max_size=400)
TENSORS = arrays("f4", array_shapes(max_dims=3, max_side=5), elements=st.floats(-8, 8, width=32)).map(torch.from_numpy)
ANY_TENSORS = arrays("f4", array_shapes(max_dims=3, max_side=5)).map(torch.from_numpy)


def spans_of(boxes: st.SearchStrategy[Box], labels: st.SearchStrategy[str] = LABELS) -> Any:
    return st.lists(st.builds(SpanSeen, labels, st.lists(boxes, max_size=3).map(tuple)), max_size=6).map(tuple)


SPANS = spans_of(BOXES)
FRACTION, TWICE = st.floats(0, 1), st.floats(0, 2)
ALLOWED = {"boxes": st.integers(0, 3), "coords": FRACTION, "text": TWICE, "seam": TWICE, "logits": TWICE}
LIMITS = st.builds(partial(replace, EXACT), **ALLOWED, ties=st.integers(0, 100))


def bests(logits: st.SearchStrategy[float]) -> st.SearchStrategy[Best]:
    made = st.lists(st.tuples(st.integers(0, 9), logits), max_size=5, unique_by=lambda one: one[0])
    return made.map(lambda rows: Best(tuple(i for i, _ in rows), tuple(logit for _, logit in rows)))


ANY_BESTS = bests(st.floats(allow_nan=True, allow_infinity=True))
STEPS = st.builds(Step, st.integers(0, 9), ANY_BESTS)
FORCED = st.builds(ForcedStep, st.integers(0, 9), ANY_BESTS, st.lists(st.floats(), max_size=5).map(tuple))
FILES = st.dictionaries(
    st.sampled_from(["result.mmd", "images/0.jpg", "images/1.jpg", "result_with_boxes.jpg", "info.json"]),
    st.builds(Artefact, st.integers(0, 9), st.none() | st.tuples(st.integers(1, 99), st.integers(1, 99))),
)
OUTPUTS = st.builds(Output, TEXTS, SPANS, TEXTS, FILES)
ANY_OUTPUTS = st.builds(Output, st.text(), spans_of(ANY_BOXES, st.text()), st.text(), FILES)


def ties(outputs: st.SearchStrategy[Output]) -> st.SearchStrategy[Tie]:
    return st.builds(Tie, st.integers(0, 9), outputs, st.booleans())


def outputs(actual: Output, expected: Output, limits: Tolerances, tie: Tie | None = None) -> list[Comparison]:
    return list(compare_output(reading(actual), expected, limits, tie))


def gravity(found: Comparison) -> int:
    return SEVERITY.index(found.verdict)


def looser(limits: Tolerances, other: Tolerances) -> Tolerances:
    return replace(limits, **{name: max(getattr(limits, name), getattr(other, name)) for name in (*ALLOWED, "ties")})


# Whatever it is given.


@briefly
@given(OUTPUTS, LIMITS, st.none() | ties(OUTPUTS))
def test_an_output_matches_itself(said: Output, limits: Tolerances, tie: Tie | None) -> None:
    assert {one.verdict for one in outputs(said, said, limits, tie)} <= {Verdict.MATCH, Verdict.NOT_COMPARED}
    assert all(one.passes for one in outputs(said, said, limits, tie))


def silence(*_: object) -> None:
    raise AssertionError("a comparer printed")


@fuzz
@given(ANY_OUTPUTS, ANY_OUTPUTS, LIMITS, st.none() | ties(ANY_OUTPUTS))
def test_outputs_never_raise_nor_print(actual: Output, expected: Output, limits: Tolerances, tie: Tie | None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", silence)
        found = outputs(actual, expected, limits, tie)
    parts = tie is not None and actual.text != expected.text
    assert [one.what for one in found] == ["read"] * parts + ["text", "spans", "boxes", "result.mmd", "artefacts"]
    assert first_divergence(found) or all(one.verdict is not Verdict.WRONG for one in found)


@briefly
@given(st.lists(FORCED, max_size=4), st.lists(STEPS, max_size=4), LIMITS)
def test_steps_never_raise(forced: list[ForcedStep], steps: list[Step], limits: Tolerances) -> None:
    compared = len(steps) == len(forced) > 0
    for found in (compare_logits(forced, steps, limits), compare_tokens(forced, steps, limits)):
        assert (found.verdict is Verdict.NOT_COMPARED) is (found.reason is Reason.INCOMPLETE) is not compared
    for one, step in zip(forced, steps, strict=False):
        assert compare_best(one.best, step.best, limits).what == "prefill_best"


@briefly
@given(ANY_TENSORS, ANY_TENSORS, LIMITS, st.booleans())
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_seams_never_raise(actual: torch.Tensor, expected: torch.Tensor, limits: Tolerances, whole: bool) -> None:
    sides = [Seam.of(tensor, keep_values=whole) for tensor in (actual, expected)]
    found = compare_seam("sam.page", sides[0], sides[1], limits.seam)
    if actual.shape != expected.shape or (actual.isfinite().all() and not expected.isfinite().all()):
        assert found.verdict is Verdict.WRONG


# Looser limits, and the other way round.


@fuzz
@given(OUTPUTS, OUTPUTS, LIMITS, LIMITS)
def test_looser_limits_make_no_verdict_on_outputs_worse(
    actual: Output, expected: Output, limits: Tolerances, other: Tolerances
) -> None:
    strict, loose = (outputs(actual, expected, one) for one in (limits, looser(limits, other)))
    assert all(gravity(a) >= gravity(b) for a, b in zip(strict, loose, strict=True))


@briefly
@given(st.lists(st.tuples(FORCED, STEPS), max_size=4), LIMITS, LIMITS)
def test_looser_limits_make_no_verdict_on_steps_worse(
    steps: list[tuple[ForcedStep, Step]], limits: Tolerances, other: Tolerances
) -> None:
    actual, expected = [one for one, _ in steps], [one for _, one in steps]
    compare: Callable[..., Comparison]
    for compare in (compare_logits, compare_tokens):
        strict, loose = (compare(actual, expected, one) for one in (limits, looser(limits, other)))
        assert gravity(strict) >= gravity(loose)


# Boxes.


@fuzz
@given(SPANS, st.integers(1, 200), st.sampled_from([1, -1]), st.integers(0, 3))
def test_a_shift_by_the_tolerance_passes_and_by_more_fails(
    spans: Sequence[SpanSeen], by: int, sign: int, side: int
) -> None:
    assume(any(span.boxes for span in spans))
    shifted = tuple(
        span._replace(boxes=tuple(Box(*(x + sign * by * (k == side) for k, x in enumerate(box))) for box in span.boxes))
        for span in spans
    )
    for allowed, verdict in ((by, Verdict.DRIFT), (by - 0.01, Verdict.WRONG)):
        assert compare_boxes(shifted, spans, replace(EXACT, coords=allowed / UNITS)).verdict is verdict


# Texts.


@briefly
@given(st.text(min_size=1, max_size=60).filter(str.strip), st.integers(1, 20))
def test_text_beside_the_limit(text: str, edits: int) -> None:
    for actual in (text + "\x00" * edits, "\x00" * edits + text[edits:], text[edits:]):
        share = min(edits, max(len(text), len(actual))) / len(text)
        if actual.strip() and Levenshtein.distance(actual, text) / len(text) == share:
            for compare in (compare_text, partial(compare_content, "result.mmd")):
                assert compare(actual, text, share).verdict is Verdict.DRIFT
                assert compare(actual, text, share * 0.999).verdict is Verdict.WRONG


# Tensors.


@briefly
@given(TENSORS, st.floats(0.001, 0.5), st.booleans())
def test_a_larger_error_is_never_less_grave(tensor: torch.Tensor, share: float, whole: bool) -> None:
    assume(float(tensor.norm()) > 0.1)
    expected = Seam.of(tensor, keep_values=whole)
    actual = Seam.of(tensor * (1 + share), keep_values=whole)
    error = compare_seam("sam.page", actual, expected, 0.0).error
    assert error == pytest.approx(share, rel=1e-3 if whole else 1.0)
    assume(error)  # two values of opposite signs in a sketch may cancel each other out
    assert error is not None
    assert compare_seam("sam.page", actual, expected, error).verdict is Verdict.DRIFT
    assert compare_seam("sam.page", actual, expected, error * 0.999).verdict is Verdict.WRONG
