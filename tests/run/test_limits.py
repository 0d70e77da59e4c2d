"""Tests of the limits between two sides: they depend on both dtypes and on whether the keys are equal."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_dsocr.compare.tolerances import OF_ONE_KEY, tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import make_case
from pytest_dsocr.records.provenance import Provenance
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.run.limits import limits_between, limits_of, own_limits
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.run.sides import compare_sides
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.protocol import Setup
from suites.contract.pages import write_page
from tests.report.made import MADE, config
from tests.run.test_substitution import FEATURES_RIGHT, Planted
from tests.subjects.seen import seen

SETUP = Setup("synthetic:tiny", "cpu", "float32", "eager")
RUN = config(**vars(SETUP), tolerances={"seam": 0.5})
RESOURCES = RunResources.of(RUN)
KEY = RESOURCES.key
ALIKE = replace(MADE, checkpoint_sha256=KEY.checkpoint_sha256)
IN_BFLOAT16: Any = SimpleNamespace(dtype="bfloat16")
OF_SETUP = object()
"""A subject that does not declare a dtype."""


@dataclass
class Reference:
    """A reference with one answer and a provenance."""

    said: ReferenceResult | None = None
    provenance: Provenance = MADE

    def observe(self, case: object) -> ReferenceResult | None:
        return self.said


@pytest.mark.parametrize(
    ("subject", "made", "dtypes", "same_key"),
    [
        (OF_SETUP, ALIKE, ("float32",), True),
        (IN_BFLOAT16, ALIKE, ("bfloat16",), True),
        (OF_SETUP, replace(ALIKE, dtype="bfloat16"), ("bfloat16",), False),
        (OF_SETUP, replace(ALIKE, device="nvidia-h200"), ("float32",), False),
        (OF_SETUP, replace(ALIKE, attention="flash_attention_2"), ("float32",), False),
        (OF_SETUP, MADE, ("float32",), False),
    ],
)
def test_outputs_are_exact_where_both_sides_are_run_alike(
    subject: Any, made: Provenance, dtypes: tuple[str, ...], same_key: bool
) -> None:
    reference: Any = Reference(provenance=made)
    limits = limits_between(subject, reference, KEY)
    narrower = OF_ONE_KEY.get(limits.dtype, {}) if same_key else {}
    assert limits == tolerances(*dtypes, same_key=same_key).but(narrower)
    assert bool(narrower) == (limits.seam == 2e-5)
    assert (limits.coords == 0) == same_key


def test_what_the_run_allows_counts_before_all() -> None:
    assert RUN.setup == SETUP
    reference: Any = Reference(provenance=replace(ALIKE, device="nvidia-h200"))
    assert limits_of(RUN, IN_BFLOAT16, reference, KEY) == tolerances("bfloat16", same_key=False).but({"seam": 0.5})
    assert own_limits(RUN, IN_BFLOAT16) == tolerances("bfloat16").but({"seam": 0.5})
    assert own_limits(RUN, OF_SETUP) == tolerances("float32").but({"seam": 0.5})


def test_a_case_is_asked_and_judged_and_its_cause_looked_for(tiny: Engine[Any], tmp_path: Path) -> None:
    """The reference's tensors come from the setup's checkpoint, where they are not kept."""
    case = make_case(write_page("tiny", tmp_path), "free", "tiny", 4, family=DEEPSEEK_OCR)
    reference: Any = Reference(seen(tiny, case), ALIKE)
    limits = tolerances("float32")
    right = compare_sides(case, EngineSubject(tiny), reference, RESOURCES, limits)
    assert (right.verdict, right.exchange.findings, right.exchange.answer.reread) == (Verdict.MATCH, (), False)
    reread = compare_sides(case, EngineSubject(tiny), reference, RESOURCES, limits, always_read=True)
    assert reread.exchange.answer.reread
    wrong = compare_sides(case, Planted(tiny, "vision"), reference, RESOURCES, limits)
    assert (wrong.verdict, wrong.exchange.findings) == (Verdict.WRONG, (FEATURES_RIGHT,))
