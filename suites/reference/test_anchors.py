"""The vendor's files against what the contract was read from, by the stage that would change."""

from pathlib import Path

import pytest

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.families.family import Vendor
from pytest_dsocr.observation.config import Config
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.reference.anchors import Anchors, read_anchors
from pytest_dsocr.reference.drift import Drift, drifts, read_json
from pytest_dsocr.reference.environment import family_with

from .goldens import anchors_of

pytestmark = pytest.mark.dsocr_vendor


@pytest.fixture(scope="module")
def drifted(dsocr_config: Config) -> dict[str, Drift]:
    """What differs, by anchor."""
    assert isinstance(dsocr_config.reference, Path)
    return {one.anchor: one for one in drifts(_pinned(dsocr_config), read_anchors(dsocr_config.reference))}


@pytest.mark.parametrize("stage", DEFAULT.vendor.contract)
def test_stage(stage: str, drifted: dict[str, Drift], dsocr_config: Config, dsocr_check: Check) -> None:
    pinned = _pinned(dsocr_config).symbols
    symbols = _vendor(dsocr_config).contract[stage]
    dsocr_check(_compared(symbol, drifted.get(symbol), pinned[symbol].file) for symbol in symbols)


def test_the_rest_of_the_files(drifted: dict[str, Drift], dsocr_config: Config, dsocr_check: Check) -> None:
    rests = [f"the rest of {name}" for name in _vendor(dsocr_config).files]
    dsocr_check(_compared(rest, drifted.get(rest), "the code outside of every anchor") for rest in rests)


def _vendor(config: Config) -> Vendor:
    return family_with(_pinned(config).files).vendor


def _pinned(config: Config) -> Anchors:
    return read_json(anchors_of(config))


def _compared(anchor: str, drift: Drift | None, where: str) -> Comparison:
    if drift is None:
        return Comparison(f"anchors/{anchor}", Verdict.MATCH, f"{where}, as it was pinned")
    return Comparison(f"anchors/{anchor}", Verdict.WRONG, f"changed, {drift.place}", None, drift.changes)
