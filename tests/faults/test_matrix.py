"""Planted mistakes are found in their own stage. A default run plants a few of them.

DSOCR_FAULTS=catalogue pytest tests/faults/test_matrix.py -n 2 --junit-xml=faults.xml  # or SAM-09,POS-01
With DSOCR_FAULTS_LEVEL=L0, L1 or L2 the subject offers only this level. The test then records the report and passes.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict

import pytest

from pytest_dsocr.explain.catalogue import mistakes, ports
from pytest_dsocr.explain.explainer import Explainer
from pytest_dsocr.models import MODELS
from pytest_dsocr.records.config import Level
from tests.faults.outcome import STAGES, Fault, of_catalogue
from tests.faults.suites import LEVEL, failure
from tests.faults.trial import BUDGET_S, SETUP, try_at_level, try_fault

ASKED = os.environ.get("DSOCR_FAULTS", "")
QUICK = ("PRM-02", "SAM-09", "SAM-W3", "CLP-08", "PRJ-W1", "FUS-01", "MOE-02", "POS-01")
"""Mistakes of each stage that the first page shows before its first step."""


def faults() -> Mapping[str, Fault]:
    """Return the wanted mistakes: all of the catalogue, or those of some ids."""
    every = ASKED == "catalogue"
    return of_catalogue(() if every else tuple(ASKED.split(",")) if ASKED else QUICK)


@pytest.fixture(scope="module")
def explainer() -> Iterator[Explainer]:
    """Explaining process, without a mistake."""
    made = Explainer(SETUP, BUDGET_S)
    yield made
    made.close()


@pytest.mark.parametrize(("name", "fault"), faults().items(), ids=faults())
def test_a_mistake_is_found_in_its_stage(
    name: str, fault: Fault, explainer: Explainer, record_property: Callable[[str, object], None]
) -> None:
    is_whole = LEVEL is Level.MODULES
    found = try_fault(fault, explainer, suites=bool(ASKED)) if is_whole else try_at_level(fault, explainer)
    if found is None:
        assert not is_whole, f"{name} survives"
        return
    for what, value in asdict(found).items():
        record_property(what, value)
    assert found.stage_right or not is_whole, found
    if name in QUICK and is_whole:
        assert found.named, found


def test_what_was_seen_is_in_the_catalogue_or_cannot_be_planted() -> None:
    assert len(ports()) > 200
    known = {name for family in MODELS.values() for name in mistakes(family)}
    assert {one.mistake for one in ports().values()} - {"", *known} == set()
    stages = {*STAGES, "sam", "clip", "projector", "vision_fusion", "read"}
    assert {fault.stage for fault in of_catalogue().values()} == stages


def test_a_suite_that_fails_is_reported_with_its_test_and_stage() -> None:
    [unturned] = of_catalogue(("IMG-W5",)).values()
    found = failure(unturned, ["suites/contract/test_pixels.py"])
    assert found is not None
    assert (found.first, found.stage_right) == ("suites/contract/test_pixels.py::test_loading[exif]", True)
    with pytest.raises(RuntimeError, match="ended with 4"):
        failure(unturned, ["suites/nowhere.py"])
