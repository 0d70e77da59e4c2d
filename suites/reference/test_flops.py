"""What each stage costs the vendor's code, live, against what was counted of it and recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.observation.config import Config
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.plugin.stash import leave_out
from pytest_dsocr.reference.goldens import recording_places

if TYPE_CHECKING:
    from pytest_dsocr.observation.case import Case
    from pytest_dsocr.reference.counts import CountedCase
    from pytest_dsocr.reference.live import LiveReference

pytestmark = pytest.mark.dsocr_vendor


def test_every_stage_costs_what_is_recorded(
    request: pytest.FixtureRequest, dsocr_config: Config, dsocr_reference: LiveReference, dsocr_check: Check
) -> None:
    """FLOPs follow from code and sizes alone, so that one more or fewer is another version of the code."""
    counted = _counted(dsocr_config)
    if not counted:
        message = "of no case of this run are FLOPs recorded; count them with the vendor's files as you know them"
        leave_out(request.node, "recording", f"{message}: dsocr vendor record --only-flops")
    dsocr_check(one for case, known in counted for one in _compared(case, known, dsocr_reference))


def _counted(config: Config) -> list[tuple[Case, CountedCase]]:
    from pytest_dsocr.engine.checkpoint import resolve
    from pytest_dsocr.pages.named import make_cases
    from pytest_dsocr.reference.counts import find_counted

    cases = make_cases(config.pages, config.prompts, config.presets, config.max_new_tokens).readable().good
    sha256, places = resolve(config.checkpoint).sha256, recording_places(config.golden)
    found = ((case, find_counted(case, places, sha256, config.reference_key[2])) for case in cases)
    return [(case, one) for case, one in found if one]


def _compared(case: Case, known: CountedCase, reference: LiveReference) -> Iterator[Comparison]:
    live, made = reference.flops(case), known.origin
    where = f"as counted on {made.date}, {made.device}, torch {made.versions.get('torch')}"
    for stage in dict.fromkeys([*known.flops, *live]):
        yield _stage(f"flops/{stage}/{case.id}", live.get(stage, 0), known.flops.get(stage, 0), where)


def _stage(what: str, live: int, known: int, where: str) -> Comparison:
    if live == known:
        return Comparison(what, Verdict.MATCH, f"{live:,} FLOPs, {where}")
    share = f" ({live / known - 1:+.2%})" if known else ""
    return Comparison(what, Verdict.WRONG, f"{live:,} FLOPs{share}; {known:,} are recorded, {where}")
