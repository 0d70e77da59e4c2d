"""Mistakes planted in an engine: the explaining process names the right one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pytest_dsocr.compare.case import CaseReport, Explanation
from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.explain.explainer import Explainer
from pytest_dsocr.explain.mistake import Changes, Mistake, model_of
from pytest_dsocr.explain.planted import plant
from pytest_dsocr.explain.proof import UNTOLD
from pytest_dsocr.explain.question import question_of
from pytest_dsocr.explain.sentence import REFUTED
from pytest_dsocr.explain.texts import everywhere, of_one_block, of_text
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.config import Level, Setup
from tests.faults.proofs import every_id
from tests.faults.trial import cases, judged, loaded, reference

ENOUGH_S = 600
"""CPU seconds that are enough on any machine."""


@pytest.fixture(scope="module")
def explainer() -> Iterator[Explainer]:
    """Explainer with one process for all questions, as in a run."""
    made = Explainer(Setup(), ENOUGH_S)
    yield made
    made.close()


def planted(*names: str | Mistake, place: int = 0, level: Level = Level.MODULES) -> CaseReport:
    """Return the report of the quickest page, or of the next, which is cut, with mistakes planted."""
    reference()  # chosen by how Pillow resizes, which a mistake may change
    with Changes() as changes:
        for name in names:
            plant(mistakes(DEEPSEEK_OCR)[name] if isinstance(name, str) else name, loaded().engine, changes)
        return judged(cases()[place], level)


def explained(explainer: Explainer, report: CaseReport, *names: str) -> Explanation:
    """Return the explanation of a case; with names, as if all other mistakes had been refuted."""
    question = question_of(report, ENOUGH_S)
    assert question is not None
    others = tuple(one for one in every_id() if one not in names) if names else ()
    explanation = explainer.answered(replace(question, only=names, done=others))
    assert explanation is not None
    return explanation


GELU, FRONT = "clip.activation-erf", "vision_fusion.separator-first"


def test_a_failure_that_no_mistake_explains_is_reported_and_the_process_goes_on(explainer: Explainer) -> None:
    bias = model_of(loaded().engine).get_parameter("model.projector.layers.bias")
    made = torch.Generator().manual_seed(1)
    with Changes() as changes:
        changes.weight(bias, bias.data + torch.randn(bias.shape, generator=made))
        explanation = explained(explainer, planted())
    assert not explanation.is_proven
    assert explanation.text.startswith("by none of ")
    assert explained(explainer, planted(GELU), GELU).is_proven


def test_two_mistakes_in_one_stage_are_not_taken_for_one(explainer: Explainer) -> None:
    explanation = explained(explainer, planted(GELU, "clip.no-bias-self_attn.out_proj"))
    assert not explanation.is_proven
    assert not explanation.text.startswith("with ")


def test_a_stage_is_asked_about_once_and_its_proof_reported_of_each_case_that_breaks_there(
    explainer: Explainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = planted(GELU)
    asking = Explainer(Setup(), ENOUGH_S)
    asking._client = explainer._client
    first, again = asking.explain(report), asking.explain(report)
    assert first is not None
    assert first.is_proven
    proof = replace(first, text=f"{first.text}; as in {report.case.id}")
    assert again == proof
    crops = planted(GELU, place=1)
    assert asking.explain(crops) == replace(proof, what="clip.crops/0")
    asking._proven.clear()
    again = asking.explain(report)
    assert again is not None
    assert (again.mistakes, again.is_proven, again.refuted) == ((), False, first.refuted), "it is searched once"
    asking._proven["clip.page/0"] = replace(first, mistakes=("clip.class-last",)), report.case.id
    monkeypatch.setattr(asking, "answered", lambda question: None)
    assert asking.explain(crops) is None, "the crops refute it, and are searched anew"


def test_a_search_that_ran_out_of_time_goes_on_at_the_next_page(explainer: Explainer) -> None:
    """The next page refutes the candidates that the first one had no time for; the cause must reproduce it too."""
    report, asking, wait = planted(GELU), Explainer(Setup(), ENOUGH_S), "clip.class-last"
    asking._client = explainer._client
    short = explained(explainer, report, GELU)
    short = replace(short, refuted=frozenset(every_id()) - {GELU, wait}, untried=1, is_proven=False)
    asking._asked["clip"] = short, "first"
    crops = planted(GELU, place=1)
    found = asking.explain(crops)
    assert found is not None
    assert (found.mistakes, found.is_proven, found.untried) == ((GELU,), True, 0)
    assert wait in found.refuted
    assert found.text.endswith("; first refutes the others")
    assert asking.explain(crops) == replace(found, text=f"{found.text}; as in {crops.case.id}")
    asking._asked["clip"] = replace(short, mistakes=(wait,)), "first"
    asking._proven.clear()
    other = asking.explain(crops)
    assert other is not None
    assert (other.mistakes, other.is_proven) == ((), False), "the next page has another cause"


def test_what_several_mistakes_give_alike_is_no_proof_of_one(explainer: Explainer) -> None:
    """A page without crops has one separator, and three mistakes put it in the same place."""
    found = explained(explainer, planted(FRONT))
    assert (len(found.mistakes), FRONT in found.mistakes, found.is_proven) == (3, True, False)


TWO_BOS, PAD, FEWER, NO_ID = (f"prompt.{name}" for name in ("two-bos", "padded-front", "one-fewer", "ids-minus"))


def test_mistakes_with_the_same_text_are_named_together_and_those_that_raise_are_reported(explainer: Explainer) -> None:
    """The engine, like the vendor's code, drops features that have no token in the prompt."""
    report = planted(TWO_BOS, level=Level.TEXT)
    assert explained(explainer, report, TWO_BOS, PAD, FEWER, NO_ID).mistakes == (TWO_BOS, PAD)
    raised = "1 known mistake tried at text; 1 could not be computed: -200 in the place of"
    assert raised in explained(explainer, report, FEWER, NO_ID).text


def test_what_explains_a_text_is_tried_on_every_page_right_or_wrong_and_the_search_goes_on(
    explainer: Explainer,
) -> None:
    """The next page narrows down the mistakes that are left of a wrong page; a right page refutes them."""
    asking, wrong, right = Explainer(Setup(), ENOUGH_S), planted(TWO_BOS, level=Level.TEXT), planted(level=Level.TEXT)
    every = of_text(0, DEEPSEEK_OCR, of_one_block(loaded().engine))
    asking._client, everything = explainer._client, dict.fromkeys(one.id for one in every)
    but_one = dict.fromkeys([*everything][:-1])
    assert asking.explain(right) is None, "there is nothing to explain yet"
    for known, tried, read, names, proven in (
        ((TWO_BOS, "read.no-rule"), everything, wrong, (TWO_BOS,), False),
        (("read.no-rule",), everything, wrong, (), False),
        ((TWO_BOS,), everything, right, (), False),
        (("read.no-rule",), but_one, wrong, (), False),
    ):
        asking.left, asking._done = known, dict(tried)
        found = asking.explain(read)
        assert found is not None
        assert (found.mistakes, found.is_proven, found.text.startswith(REFUTED)) == (names, proven, not names)
        assert found.pages == len(asking._pages)
    asking.left, asking._done = (), but_one
    assert getattr(asking.explain(wrong), "text", "").startswith("by none of 1 known mistake tried at text")


@pytest.mark.parametrize("name", [FRONT, "projector.no-bias", "steps.positions-one-low", "pixels.opened-bgr"])
def test_a_text_alone_is_explained_by_a_mistake_of_any_stage(name: str, explainer: Explainer) -> None:
    assert explained(explainer, planted(name, level=Level.TEXT), name, TWO_BOS).mistakes == (name,)


@pytest.mark.parametrize(
    ("level", "name", "is_proven"),
    [
        (Level.TEXT, "prefill.transposed-self_attn.o_proj@2", True),
        (Level.TEXT, "all.weights-int4", False),  # its text leaves the right one in six places, which may be chance
        (Level.STAGES, "prefill.experts-exchanged@3", True),
        (Level.STAGES, "sam.gives-bfloat16@1", True),
    ],
)
def test_a_mistake_of_one_block_alone_and_one_of_all_weights_is_told_from_its_like(
    level: Level, name: str, is_proven: bool, explainer: Explainer
) -> None:
    known = {one.id: one for one in (*of_one_block(loaded().engine), *everywhere(DEEPSEEK_OCR))}
    like = [
        one
        for one in (*known, *mistakes(DEEPSEEK_OCR))
        if one.partition("@")[0] == name.partition("@")[0] or one == TWO_BOS
    ]
    found = explained(
        explainer, planted(known[name], level=level), *like, *(one for one in known if one.startswith("all"))
    )
    assert (found.mistakes, found.is_proven) == ((name,), is_proven), found.text
    assert is_proven == ("in block" in found.text), "of what chance gives as likely, none is named"
    assert found.words == (() if found.text.startswith(UNTOLD) else (known[name].words,))


def test_what_is_computed_soon_is_tried_in_front_and_what_is_known_to_be_right_is_not() -> None:
    tried = [[one.id.partition(".")[0] for one in of_text(level, DEEPSEEK_OCR)] for level in range(3)]
    assert ([*dict.fromkeys(tried[0])][:2], {*tried[2]}) == (["text", "read"], {"text", "read"})
    assert {*tried[0]} - {*tried[1]} == {"pixels", "prompt"}
    assert {*tried[0][tried[0].index("all") :]} <= {"all", "pixels", "sam"}, "only these run SAM's blocks again"


def test_without_seconds_nothing_is_asked() -> None:
    assert Explainer(Setup(), 0).explain(planted(GELU)) is None


def test_a_checkpoint_that_cannot_be_loaded_is_reported_in_a_line(tmp_path: Path) -> None:
    made = Explainer(Setup(checkpoint=str(tmp_path)), ENOUGH_S)
    explanation = made.explain(planted(GELU))
    made.close()
    assert explanation is not None
    assert explanation.text.startswith("nothing was tried: ")
    assert "\n" not in explanation.text
