"""Ports with several mistakes: each is named at its own stage, and the list shrinks as they are fixed one by one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_dsocr.compare.case import CaseReport, CaseRun, Explanation, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.explain.explain import explain
from pytest_dsocr.explain.further import next_wrong
from pytest_dsocr.explain.mistake import Changes, blocks_of
from pytest_dsocr.explain.planted import plant
from pytest_dsocr.explain.question import PageRead, Question, Trail, question_of
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.explain.search import NextWrong, SearchResult
from pytest_dsocr.explain.sentence import of_further, of_search
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.run.substitution import substitute
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.follow import run_teacher_forced
from suites.contract.pages import write_wide
from tests.crops import cropped_case
from tests.describe import real
from tests.faults.proofs import every_id
from tests.subjects.seen import seen
from tests.subjects.spoilt import only

POSITIONS, CLASS_LAST, NEWLINES = "sam.positions-no-antialias", "clip.class-last", "vision_fusion.newlines-in-front"
BGR, ROPE, TWO_BOS = "pixels.opened-bgr", "prefill.rope-interleaved", "prompt.two-bos"
NO_BIAS, POSITIONS_OF_CLIP = "clip.no-bias-self_attn.out_proj", "clip.positions-no-antialias"
TURNED = "clip.positions-turned"
FINAL_NORM, GELU = "clip.final-norm", "clip.activation-erf"


class Page(NamedTuple):
    """A page in two crops, and what the reference says of it."""

    engine: Engine[Any]
    case: Case
    expected: ReferenceResult
    right: Clean


def page_of(engine: Engine[Any], case: Case) -> Page:
    right, inputs = (
        seen(engine, case, keep_values=True),
        engine.prepare(case.page, prompt=case.prompt, preset=case.preset),
    )
    seams = run_teacher_forced(EngineSubject(engine), case, right).seams
    return Page(engine, case, replace(right, seams=seams), Clean(engine, inputs))


@pytest.fixture(scope="module")
def page(tiny: Engine[Any], tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(tiny, cropped_case(tmp_path_factory.mktemp("pages"), "free", 2))


def judged(page: Page, *names: str, level: Level = Level.MODULES) -> CaseReport:
    """Return the report of a subject with mistakes."""
    subject = only(EngineSubject(page.engine), level)
    with Changes() as changes:
        for name in names:
            plant(mistakes(DEEPSEEK_OCR)[name], page.engine, changes)
        answer = run_teacher_forced(subject, page.case, page.expected)
        report = judge(CaseRun(page.case, answer, page.expected, 0.0, 0.0), tolerances("float32"))
        return replace(report, exchange=replace(report.exchange, **substitute(subject, report)._asdict()))


def causes(page: Page, report: CaseReport, tried: Sequence[str]) -> list[Explanation]:
    """Return the explanations of all causes, with all but the ``tried`` mistakes refuted."""
    if (question := question_of(report, 60.0)) is None:
        return []
    done = tuple(one for one in every_id() if one not in tried)
    question, clean = replace(question, only=tuple(tried), done=done), page.right
    first = of_search(question, explain(page.engine, page.case, question, lambda _: clean))
    report = replace(report, exchange=replace(report.exchange, explanation=first))
    found = next_wrong(clean, page.case, Trail.of(report, question))
    return [*filter(None, [first]), *of_further(question, found, first)]


CLIP = "clip.crops/0"
PORTS = [
    ((POSITIONS, CLASS_LAST, NEWLINES), (("sam.crops/0", POSITIONS), (CLIP, CLASS_LAST), ("vision_fusion", NEWLINES))),
    ((NEWLINES,), (("vision_fusion", NEWLINES),)),
    ((BGR, ROPE), (("images_crop", BGR), ("prefill/0", ROPE))),
    ((CLASS_LAST, FINAL_NORM), ((CLIP, CLASS_LAST), ("clip.crops", FINAL_NORM))),
    ((CLASS_LAST, GELU), ((CLIP, CLASS_LAST), (CLIP, f"{CLASS_LAST}+activation-erf"))),
]
"""Mistakes of a port, and each cause with the comparison where it is found."""


@pytest.mark.parametrize(("names", "found"), PORTS, ids=lambda one: " ".join(one) if one and "." in one[0] else "")
def test_every_cause_is_named_at_its_own_stage(
    names: tuple[str, ...], found: tuple[tuple[str, str], ...], page: Page
) -> None:
    every = causes(page, judged(page, *names), names)
    assert [(one.what, one.mistakes[0]) for one in every] == [*found]


@pytest.mark.parametrize(("by", "name"), [(1, "sam.global-early"), (-1, "sam.global-late")])
def test_global_attention_in_the_next_block_is_one_cause(by: int, name: str) -> None:
    page = page_of(real.engine(), make_case(real.PAGE, "free", "tiny", family=DEEPSEEK_OCR))
    blocks = blocks_of(page.engine, "sam")
    windows = [one.window for one in blocks]
    moved = [14, *windows[:-1]] if by < 0 else [*windows[1:], 14]
    with Changes() as changes:
        for block, window in zip(blocks, moved, strict=True):
            changes.set(block, "window", window)
        report = judged(page)
    [cause] = causes(page, report, (name, "sam.global-everywhere", "sam.windows-everywhere"))
    assert cause.mistakes == (name,)
    assert cause.text.endswith("all of sam after it")


@pytest.mark.dsocr_slow
def test_two_causes_of_the_crops_are_told_apart_by_the_page_that_has_one_of_them(
    tiny: Engine[Any], tmp_path: Path
) -> None:
    """The whole page is as large as the table of positions, so its positions are not resized."""
    own = page_of(tiny, make_case(write_wide(tmp_path, DEEPSEEK_OCR), "free", "gundam", 2, family=DEEPSEEK_OCR))
    names = (NO_BIAS, POSITIONS_OF_CLIP)
    every = [(one.what, *one.mistakes) for one in causes(own, judged(own, *names, level=Level.STAGES), names)]
    assert every == [("clip.crops",), ("clip.page", NO_BIAS), ("clip.crops", POSITIONS_OF_CLIP)]


def with_views(of_crops: CaseReport, of_page: CaseReport) -> CaseReport:
    """Return the report of a subject with the crops of one and the whole page of another."""
    wrong, other = of_crops.exchange.answer, of_page.exchange.answer
    kept = [name for name in wrong.seams if name != "vision_fusion"]
    seams = {name: (wrong if ".crops" in name else other).seams[name] for name in kept}
    vision = {
        name: tensor if ".crops" in name else (other.vision_tensors or {})[name]
        for name, tensor in (wrong.vision_tensors or {}).items()
        if name in seams
    }
    answer = replace(wrong, seams=seams, vision_tensors=vision)
    return judge(replace(of_crops.exchange, answer=answer), of_crops.limits)


def test_a_cause_of_the_page_that_leaves_the_crops_wrong_is_no_proof(page: Page) -> None:
    report = with_views(judged(page, GELU), judged(page, CLASS_LAST))
    first, second = causes(page, report, (CLASS_LAST,))
    assert (first.what, first.is_whole) == (CLIP, False)
    assert (second.what, second.mistakes, second.is_proven) == ("clip.page/0", (CLASS_LAST,), False)
    assert second.text.endswith(f", but not {CLIP}")


def test_a_view_that_is_right_alone_has_no_cause_of_its_own(page: Page) -> None:
    """A cause that only the crops have makes the page wrong as well if the engine has it, and there it is undone."""
    report = with_views(judged(page, TURNED), judged(page))
    every = causes(page, report, (TURNED,))
    assert [(one.what, *one.mistakes) for one in every] == [("clip.crops/0", TURNED)]


def test_inputs_alone_are_looked_at_below_level_2(page: Page) -> None:
    names = (TWO_BOS, BGR, CLASS_LAST)
    every = causes(page, judged(page, *names, level=Level.INPUTS), names)
    assert [one.what for one in every] == ["input_ids", "images_crop"]


def test_a_cause_is_proven_only_if_those_that_it_needs_are() -> None:
    question = Question(PageRead({}, "", ()), CLIP, int(Level.MODULES), budget_s=60.0, near=1e-4)
    first = Explanation("with it", CLIP, (CLASS_LAST,), is_proven=True)
    result = SearchResult(1, 0, 1.0, (GELU,), ("",), ("clip",), 0.0, explained=True)
    every = [NextWrong("clip.crops/1", result, (needs,)) for needs in (CLASS_LAST, FINAL_NORM)]
    assert [one.is_proven for one in of_further(question, every, first)] == [True, False]
