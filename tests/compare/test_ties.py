"""Real ties: the vendor's own runs pass, and no output passes that their steps do not lead to.

Each tie comes from two runs of the vendor's code on one page: bf16 on a GPU, and float32 on a CPU. Each run is compared
with the other. Both are recordings made with Pillow 12, so nothing is computed, and pixels are not compared.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import pytest

from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.output import BOXES, EDITS, LENGTH, Tie, TieDistance, is_sure
from pytest_dsocr.compare.tokens import is_tie
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Comparison, Symptom, Verdict
from pytest_dsocr.contract.markup import parse, to_mmd
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.provenance import RecordingKey
from pytest_dsocr.records.reference_result import Best, Output, ReferenceResult, SpanSeen, Step
from pytest_dsocr.records.subject_result import ForcedStep, SubjectResult
from pytest_dsocr.reference.recording import Recording
from tests.compare.made import along
from tests.recordings import FOLDER, find_recording

ON_CPU, ON_GPU = ("cpu", "float32", "eager"), ("nvidia-h200", "bfloat16", "eager")
UNDER_PILLOW_12 = "4e7a837ab1a41daf"
"""Hash of Pillow's resizing; see :mod:`pytest_dsocr.contract.image`."""
LIMITS = tolerances("bfloat16", "float32", same_key=False)


@dataclass(frozen=True, eq=False)
class RealTie:
    """A case of which one run parts from the other over a tie."""

    name: str
    step: int
    actual: ReferenceResult
    expected: ReferenceResult

    def answer(self, output: Output | None = None, continued: Output | None = None) -> SubjectResult:
        """Return one run's result along the other's tokens, with ``output`` instead of its own if given."""
        output, forced = output or self.actual.output, list(along(self.expected.steps))
        forced[self.step] = _at(self.actual, self.step)
        answer = SubjectResult(self.name, Level.STAGES, output.text, output.spans, output.mmd, output.artefacts)
        return replace(
            answer,
            inputs=self.expected.inputs,
            seams=self.expected.seams,
            prefill_best=self.expected.prefill_best,
            forced=tuple(forced),
            continued=continued or self.actual.output,
        )

    def compared(self, output: Output | None = None, continued: Output | None = None) -> dict[str, Comparison]:
        """Hold it against the other."""
        found = compare_observations(self.answer(output, continued), self.expected, LIMITS)
        return {one.what: one for one in found}


@cache
def real_ties(checkpoint: str, actual: tuple[str, str, str], expected: tuple[str, str, str]) -> dict[str, RealTie]:
    """Return every case of a checkpoint in which ``actual`` parts from ``expected`` by a tie, by the case's id."""
    weights = resolve(checkpoint).sha256
    keys = (RecordingKey(checkpoint, *side, weights) for side in (actual, expected))
    return {tie.name: tie for tie in _found(*(find_recording(FOLDER, key, UNDER_PILLOW_12) for key in keys))}


def said(text: str) -> Output:
    """Make an output of a text; its files are another's matter."""
    spans = tuple(SpanSeen(span.label, span.boxes) for span in parse(text, DEEPSEEK_OCR.form).spans)
    return Output(text, spans, to_mmd(text, DEEPSEEK_OCR.form), {})


def _found(actual: Recording, expected: Recording) -> Iterator[RealTie]:
    for case_id, recorded in expected.cases.items():
        a, b = actual.cases[case_id].observation, recorded.observation
        pairs = enumerate(zip(a.token_ids, b.token_ids, strict=False))
        step = next((k for k, (one, other) in pairs if one != other), None)
        if step is not None and is_tie(_at(a, step), b.steps[step], LIMITS):
            yield RealTie(case_id, step, a, b)


def _at(of: ReferenceResult, step: int) -> ForcedStep:
    token, best = of.steps[step]
    return ForcedStep(token, best, best.logits)


OUTPUTS = ("read", "text", "spans", "boxes", "result.mmd", "artefacts")
MINI = real_ties("mini", ON_GPU, ON_CPU) | {
    f"{name}, the other way": tie for name, tie in real_ties("mini", ON_CPU, ON_GPU).items()
}
SOME = dict(list(MINI.items())[::9])
"""Ties on a page of each kind, for tests with many variants."""
RANDOM = real_ties("synthetic:small", ON_GPU, ON_CPU)


@pytest.mark.parametrize("ties", [MINI, RANDOM], ids=["mini", "random weights"])
def test_real_flips_pass(ties: dict[str, RealTie]) -> None:
    assert len(ties) >= 8
    for name, tie in ties.items():
        found = tie.compared()
        assert found["tokens"].verdict is found["text"].verdict is Verdict.TIE_FLIP, name
        assert found["read"].verdict is Verdict.MATCH, name
        assert not any(found[what].verdict is Verdict.WRONG for what in OUTPUTS if what in found), name
        unexcused = replace(tie.answer(), continued=None)
        assert {one.what: one.verdict for one in compare_observations(unexcused, tie.expected, LIMITS)}[
            "text"
        ] is Verdict.WRONG


def test_real_flips_stay_well_inside_the_bounds() -> None:
    near = [TieDistance.of(tie.actual.output, tie.expected.output) for tie in MINI.values()]
    assert max(one.edits / one.rest for one in near) < 0.7 * EDITS
    assert max(one.longer / one.rest for one in near) < 0.7 * LENGTH
    assert max(one.alone / one.boxes for one in near) < 0.7 * BOXES
    nothing = Output("", (), "", {})
    assert TieDistance.of(nothing, nothing) == TieDistance(0, 0, 0, 0, 0)


# What its own steps do not give.


def changed(text: str, at: int) -> str:
    return text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1 :]


def moved(text: str, by: int) -> str:
    return re.sub(r"\d+(?=[^|]*<\|/det\|>)", lambda number: str((int(number[0]) + by) % 1000), text)


def parted(tie: RealTie) -> int:
    """Return the first character that differs."""
    pairs = enumerate(zip(tie.actual.output.text, tie.expected.output.text, strict=False))
    return next(at for at, (a, b) in pairs if a != b)


def other(tie: RealTie) -> str:
    """Another page's text."""
    names = sorted(name for name in MINI if name.partition("_")[0] != tie.name.partition("_")[0])
    return MINI[names[len(tie.name) % len(names)]].expected.output.text


ASTRAY: dict[str, Callable[[str, RealTie], str]] = {
    "empty": lambda text, tie: "",
    "the first tenth": lambda text, tie: text[: len(text) // 10],
    "another page": lambda text, tie: other(tie),
    "no markup": lambda text, tie: re.sub(r"<\|/?(ref|det)\|>", "", text),
    "every box moved": lambda text, tie: moved(text, 300),
    "other labels": lambda text, tie: re.sub(r"<\|ref\|>\w+", "<|ref|>seal", text),
}
"""Readings that are of the page no more, whoever's steps give them."""
WRONG: dict[str, Callable[[str, RealTie], str]] = {
    **ASTRAY,
    "all but the last character": lambda text, tie: text[:-1],
    "what stands before the tie": lambda text, tie: text[: parted(tie)],
    "a character before the tie": lambda text, tie: changed(text, parted(tie) // 2),
    "its end again and again": lambda text, tie: text + text[-40:] * 6,
    "every box a little moved": lambda text, tie: moved(text, 1),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_its_own_steps_do_not_give_is_wrong(kind: str) -> None:
    for name, tie in SOME.items():
        for text in (tie.actual.output.text, tie.expected.output.text):
            read = said(WRONG[kind](text, tie))
            assert read.text not in (tie.actual.output.text, tie.expected.output.text), name
            found = tie.compared(read)
            assert found["read"].verdict is found["text"].verdict is Verdict.WRONG, name


@pytest.mark.parametrize("kind", ASTRAY)
def test_steps_that_read_the_page_no_more_are_wrong(kind: str) -> None:
    for name, tie in SOME.items():
        own = said(ASTRAY[kind](tie.actual.output.text, tie))
        found = tie.compared(own, own)
        assert (found["read"].verdict, found["text"].verdict) == (Verdict.MATCH, Verdict.WRONG), name
        assert found["text"].signs & {Symptom.UNRELATED, Symptom.LENGTH, Symptom.ELSEWHERE, Symptom.MARKUP}, name


def test_random_weights_are_sure_of_nothing() -> None:
    assert all(is_sure(tie.expected.steps) for tie in MINI.values())
    assert not any(is_sure(tie.expected.steps) for tie in RANDOM.values())
    assert not is_sure([])
    for logits in ((), (float("nan"),), (float("inf"), 0.0), (-float("inf"),), (0.0, 0.0)):
        assert not is_sure([Step(1, Best(tuple(range(len(logits))), logits))])


@pytest.mark.parametrize(("boxes", "elsewhere", "astray"), [(1, 1, 0), (3, 1, 0), (3, 2, 1), (6, 2, 0), (6, 3, 1)])
def test_a_third_of_the_boxes_may_be_elsewhere_and_one_of_any(boxes: int, elsewhere: int, astray: int) -> None:
    places = [f"<|ref|>text<|/ref|><|det|>[[100, {k}00, 200, {k}50]]<|/det|>" for k in range(1, boxes + 1)]
    actual = [place.replace("[[100", "[[-300") if k < elsewhere else place for k, place in enumerate(places)]
    found = Tie(1, said("\n".join(actual)), sure=True).astray(said("\n".join(places)))
    assert [one.sign for one in found] == [Symptom.ELSEWHERE] * astray


def distinct(start: int, count: int) -> str:
    """Characters that no two of are equal."""
    return "".join(map(chr, range(start, start + count)))


PLAIN = distinct(0x4E00, 100)


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        (distinct(0x6000, 50) + PLAIN[50:], None),
        (distinct(0x6000, 51) + PLAIN[51:], Symptom.UNRELATED),
        ("x" + PLAIN[1:] + distinct(0x6000, 33), None),
        ("x" + PLAIN[1:] + distinct(0x6000, 34), Symptom.LENGTH),
        (PLAIN[:-1] + distinct(0x6000, 24), None),
        (PLAIN[:-1] + distinct(0x6000, 25), Symptom.UNRELATED),
        (PLAIN[:-1] + "Ġ", Symptom.BYTE_MARKS),
    ],
)
def test_each_bound_on_text_holds_by_itself(text: str, sign: Symptom | None) -> None:
    assert {one.sign for one in Tie(1, said(text), sure=True).astray(said(PLAIN))} == {sign} - {None}
    assert not Tie(1, said(text), sure=False).astray(said(PLAIN))
