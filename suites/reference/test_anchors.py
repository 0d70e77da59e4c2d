"""Vendor's files, compared with the pinned ones by stage of the contract."""

from pathlib import Path

import pytest

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.plugin.config import own_config
from pytest_dsocr.records.config import Config
from pytest_dsocr.reference.anchors import Anchors, read_anchors
from pytest_dsocr.reference.drift import Drift, drifts, read_json
from pytest_dsocr.reference.environment import check_vendor_folder, family_in

from .goldens import anchors_of

pytestmark = pytest.mark.dsocr_vendor


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each stage of the model that the named files, or the checkpoint, belong to."""
    if "stage" in metafunc.fixturenames:
        config = own_config(metafunc.config)
        family = family_in(config.reference) if isinstance(config.reference, Path) else None
        metafunc.parametrize("stage", (family or family_named(config.checkpoint)).vendor.contract)


@pytest.fixture(scope="module")
def own(dsocr_config: Config) -> ModelSpec:
    """Return the model of the vendor's files that the run names."""
    assert isinstance(dsocr_config.reference, Path)
    return check_vendor_folder(dsocr_config.reference)


@pytest.fixture(scope="module")
def pinned(own: ModelSpec, dsocr_config: Config) -> Anchors:
    """Return the pinned anchors of that model."""
    return read_json(anchors_of(dsocr_config, own))


@pytest.fixture(scope="module")
def drifted(pinned: Anchors, dsocr_config: Config) -> dict[str, Drift]:
    """Return the changes in the vendor's files by anchor."""
    assert isinstance(dsocr_config.reference, Path)
    return {one.anchor: one for one in drifts(pinned, read_anchors(dsocr_config.reference))}


def test_stage(stage: str, own: ModelSpec, pinned: Anchors, drifted: dict[str, Drift], dsocr_check: Check) -> None:
    symbols = own.vendor.contract[stage]
    dsocr_check(_compared(symbol, drifted.get(symbol), pinned.symbols[symbol].file) for symbol in symbols)


def test_the_rest_of_the_files(own: ModelSpec, drifted: dict[str, Drift], dsocr_check: Check) -> None:
    rests = [f"the rest of {name}" for name in own.vendor.files]
    dsocr_check(_compared(rest, drifted.get(rest), "the code outside of every anchor") for rest in rests)


def _compared(anchor: str, drift: Drift | None, where: str) -> Comparison:
    if drift is None:
        return Comparison(f"anchors/{anchor}", Verdict.MATCH, f"{where}, as pinned")
    return Comparison(f"anchors/{anchor}", Verdict.WRONG, f"changed, {drift.place}", None, drift.changes)
