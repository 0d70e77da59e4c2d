"""Ports in fewer bits, for real: judged by their budget, their cost found stage by stage, mistakes in them named."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import pytest

from pytest_dsocr.base.elapsed import Elapsed
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.compare.tolerances import BUDGETS, Budget
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.explain.mistake import Changes
from pytest_dsocr.explain.planted import plant
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.case import make_case
from pytest_dsocr.records.config import Setup
from pytest_dsocr.reference.opening import WantedReference, open_recorded
from pytest_dsocr.run.case import run_case
from pytest_dsocr.run.limits import budget_of
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.subjects.engine import EngineSubject, engine_subject
from tests.recordings import FOLDER
from tests.report.made import config

PAGE = next(page for page in shipped("dev-3") if page.stem == "figures_201")


@cache
def subject() -> EngineSubject:
    return engine_subject(Setup())


@contextmanager
def planted(*names: str) -> Iterator[EngineSubject]:
    with Changes() as changes:
        for name in names:
            plant(mistakes(DEEPSEEK_OCR)[name], subject().engine, changes)
        yield subject()


def report(*names: str, explain: float = 0.0, budget: Mapping[str, float] = BUDGETS["int8"]) -> CaseReport:
    """Compare one page, read by an engine with planted mistakes, in a run with a budget."""
    own = config(
        explain=explain,
        out=None,
        quantization_budget=budget,
        given_by={"quantization_budget": "--dsocr-quantization-budget"},
    )
    reference = open_recorded([FOLDER], WantedReference(resolve("mini"), fixed=frozenset()))
    with planted(*names) as asked:
        case = make_case(PAGE, "markdown", "gundam", max_new_tokens=16, family=DEEPSEEK_OCR)
        return run_case(case, 1, asked, reference, own, Elapsed("test"), RunResources.of(own))[0]


@pytest.mark.dsocr_slow
def test_a_port_in_eight_bits_is_within_its_budget_and_its_cost_is_where_they_are() -> None:
    found = report("sam.weights-int8")
    assert (str(found.verdict), found.passes) == ("DRIFT", True)
    assert 0 < found.loss["kl"] < BUDGETS["int8"]["kl"]
    stages = found.exchange.stages
    assert [*stages] == ["sam", "clip", "projector", "vision_fusion", "decoder"]
    assert stages["sam"] == pytest.approx(found.loss["kl"], rel=0.01), "all of it is SAM's"
    assert max(abs(cost) for name, cost in stages.items() if name != "sam") < stages["sam"] / 100


@pytest.mark.dsocr_slow
def test_of_a_decoder_in_four_bits_the_decoder_costs_all() -> None:
    found = report("prefill.weights-int4")
    assert found.exchange.stages["decoder"] == pytest.approx(found.loss["kl"], rel=0.01)


def test_without_a_budget_the_same_port_is_wrong() -> None:
    found = report("sam.weights-int8", budget={})
    assert (str(found.verdict), found.loss, found.exchange.stages) == ("WRONG", {}, {})


@pytest.mark.dsocr_slow
def test_a_mistake_in_a_port_in_eight_bits_is_wrong_and_named() -> None:
    found = report("clip.weights-int8", "clip.activation-erf", explain=600.0)
    assert found.divergence is not None
    assert found.divergence.first.what == "clip.rounding"
    assert found.exchange.explanation is not None
    assert "clip.activation-erf" in found.exchange.explanation.mistakes


class Declared:
    """A subject that declares a precision."""

    def __init__(self, precision: str) -> None:
        self.precision = precision


def test_the_precision_that_a_subject_declares_sets_its_budget_and_an_option_changes_it() -> None:
    def found(given: Mapping[str, float], subject: object = None) -> Budget | None:
        return budget_of(
            config(
                quantization_budget=given,
                given_by={"quantization_budget": "DSOCR_QUANTIZATION_BUDGET"} if given else {},
            ),
            subject,
        )

    int8, kl = BUDGETS["int8"], {"kl": 0.5}
    assert found({}) is None
    declared = "the int8 budget, declared by the subject"
    assert found({}, Declared("int8")) == Budget(int8, declared)
    assert found(kl, Declared("int8")) == Budget(
        {**int8, **kl}, f"{declared}, with kl=0.5 by DSOCR_QUANTIZATION_BUDGET"
    )
    assert found(int8, Declared("fp8")) == Budget(int8, "the int8 budget by DSOCR_QUANTIZATION_BUDGET")
    assert found(int8) == Budget(int8, "the int8 budget by DSOCR_QUANTIZATION_BUDGET")
    assert found(kl) == Budget(kl, "a budget by DSOCR_QUANTIZATION_BUDGET")
    with pytest.raises(DsocrError, match="declare one of int8, fp8, int4"):
        budget_of(config(quantization_budget={}), Declared("int3"))
