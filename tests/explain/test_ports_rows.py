"""Rows for mistakes of real ports: each is planted, changes its stage, and is found there by its own search."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.explain.explain import explain
from pytest_dsocr.explain.mistake import Changes, Mistake, model_of
from pytest_dsocr.explain.planted import plant
from pytest_dsocr.explain.question import question_of
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.explain.search import SearchResult
from pytest_dsocr.explain.together import together
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.provenance import Provenance
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.reference.engine import EngineRuntime
from pytest_dsocr.run.sides import ask
from pytest_dsocr.subjects.engine import EngineSubject
from suites.contract.pages import PAGES
from tests.engine.test_engine import CROPS, SMALL, cropping

ENOUGH_S, SIDE_PX = 600.0, 192
"""Seconds that are enough on any machine, and a side whose tables are not resized by a whole number."""
POSITIONS = ("in-a-row", "stride-newline", "stride-class", "no-antialias", "channels-first", "asymmetric")
EXPONENTIALS = ("schraudolph", "limit-1024")
STRIDES = ("crops-stride-no-newline", "crops-stride-newline", "page-stride-no-newline", "page-stride-newline")
ROWS = (
    *(f"pixels.resize-{name}" for name in ("one-pass", "no-antialias", "opencv-antialias", "mitchell")),
    *(f"prompt.{name}" for name in ("escaped", "published", "ids-published")),
    *(f"{stage}.positions-{name}" for stage in ("sam", "clip") for name in POSITIONS),
    *(f"sam.activation-tanh-{name}" for name in EXPONENTIALS),
    *(f"clip.activation-quick-{name}" for name in EXPONENTIALS),
    *(f"{stage}.softmax-{name}" for stage in ("sam", "clip", "prefill") for name in EXPONENTIALS),
    *(f"vision_fusion.{name}" for name in STRIDES),
    "prefill.features-shifted-early",
    *(f"prefill.{kind}-{name}" for kind in ("experts-softmax", "mlp", "exp") for name in EXPONENTIALS),
    *("read.size-1", "tokens.size-1"),
)

TILING = replace(SMALL.tiling, crop_px=SIDE_PX, squashed_up_to_px=SIDE_PX)
PRESET = replace(SMALL.presets[CROPS], base_size=SIDE_PX, image_size=SIDE_PX, tiling=TILING)
FAMILY = replace(SMALL, presets={CROPS: PRESET})


class Right:
    """Reference that has read one page."""

    def __init__(self, seen: ReferenceResult, provenance: Provenance) -> None:
        self.seen, self.provenance = seen, provenance

    def observe(self, case: Case) -> ReferenceResult:
        return self.seen

    def close(self) -> None:
        """Hold nothing."""


@pytest.fixture(scope="module")
def engine() -> Engine[Any]:
    made = cropping()
    model_of(made).arch = replace(model_of(made).arch, family=FAMILY)
    return made


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    page = tmp_path_factory.mktemp("page") / "page.png"
    PAGES["landscape"]().resize((400, 200)).save(page)
    return Case(page, FAMILY.prompts["markdown"], PRESET, 6, FAMILY)


@pytest.fixture(scope="module")
def right(engine: Engine[Any], case: Case) -> Right:
    known = EngineRuntime.load("synthetic:tiny").provenance
    return Right(EngineRuntime(EngineSubject(engine), known, lambda *_: None).observe(case), known)


def _report(one: Mistake, engine: Engine[Any], right: Right, case: Case) -> CaseReport:
    with Changes() as changes, torch.no_grad():
        plant(one, engine, changes)
        reads = one.group == "read"
        return judge(ask(EngineSubject(engine), right, case, always_read=reads), tolerances("float32"))


def _found(report: CaseReport, engine: Engine[Any], *names: str) -> SearchResult:
    """Return the result of a search among these rows and two more of their kind."""
    question = question_of(report, ENOUGH_S)
    assert question is not None
    kinds = {(one.group, one.kind) for one in map(mistakes(FAMILY).get, names) if one}
    of_kind = [one.id for one in mistakes(FAMILY).values() if (one.group, one.kind) in kinds]
    done = tuple(one for one in mistakes(FAMILY) if one not in of_kind[:2])
    with torch.no_grad():
        return explain(engine, report.case, replace(question, only=names, done=done), partial(_clean, engine))


def _clean(engine: Engine[Any], case: Case) -> Clean:
    return Clean(engine, engine.prepare(case.page, prompt=case.prompt, preset=case.preset))


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_found_by_its_own_search(name: str, engine: Engine[Any], right: Right, case: Case) -> None:
    report = _report(mistakes(FAMILY)[name], engine, right, case)
    assert report.divergence is not None, "it changes nothing"
    found = _found(report, engine, name)
    assert (found.found, found.explained, found.error) == ((name,), True, 0.0)


PAIRS = (
    ("pixels.resize-one-pass", "pixels.levels-float32"),
    ("pixels.levels-bgr", "pixels.crops-backwards"),
    ("prompt.two-bos", "prompt.escaped"),
    ("vision_fusion.separator-zero", "vision_fusion.crops-stride-no-newline"),
)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_mistakes_of_one_stage_are_found_together(
    one: str, other: str, engine: Engine[Any], right: Right, case: Case
) -> None:
    both = together(mistakes(FAMILY)[one], mistakes(FAMILY)[other])
    assert both is not None
    report = _report(both, engine, right, case)
    found = _found(report, engine, one, other)
    assert (found.explained, found.error, len(found.found)) == (True, 0.0, 1)
    assert {*found.found[0].partition(".")[2].split("+")} == {name.partition(".")[2] for name in (one, other)}
    assert found.tried == len({one, other, *found.done})


def test_mistakes_that_change_the_same_are_not_joined() -> None:
    known = mistakes(FAMILY)
    assert together(known["pixels.levels-bgr"], known["pixels.levels-grey"]) is None
    assert together(known["pixels.levels-bgr"], known["prompt.escaped"]) is None
    assert together(known["prompt.two-bos"], known["prompt.no-bos"]) is None
