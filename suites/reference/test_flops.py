"""FLOPs of each stage of the vendor's code, run live and compared with computed ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.plugin.stash import leave_out
from pytest_dsocr.records.config import Config

from .goldens import cases_of

if TYPE_CHECKING:
    from pytest_dsocr.records.case import Case
    from pytest_dsocr.reference.live import LiveReference

pytestmark = pytest.mark.dsocr_vendor
COUNTED = "eager"
"""Attention with products that torch's counter sees."""
GENERATED_TOKENS = 2
"""Two tokens: one of the prefill, one of the first step."""


def test_every_stage_costs_what_it_costs_by_arithmetic(
    request: pytest.FixtureRequest, family: ModelSpec, dsocr_config: Config, dsocr_check: Check
) -> None:
    """Compare exactly: FLOPs follow from code and sizes, and any difference means other code."""
    if (attention := dsocr_config.reference_key[2]) != COUNTED:
        leave_out(request.node, "recording", f"torch does not count all FLOPs of attention {attention}; use {COUNTED}")
    reference = request.getfixturevalue("dsocr_reference")
    cases, checkpoint = cases_of(dsocr_config, family), dsocr_config.checkpoint
    dsocr_check(one for case in cases for one in _compared(case, checkpoint, reference))


def _compared(case: Case, checkpoint: str, reference: LiveReference) -> Iterator[Comparison]:
    live, computed = reference.flops(case), _computed(case, checkpoint)
    if "decode" not in live:  # the page ends with its first token
        del computed["decode"]
    for stage in dict.fromkeys([*computed, *live]):
        yield _stage(f"flops/{stage}/{case.id}", live.get(stage, 0), computed.get(stage, 0))


def _computed(case: Case, checkpoint: str) -> dict[str, int]:
    from pytest_dsocr.contract.image import load_image
    from pytest_dsocr.cost.decoder import VENDOR
    from pytest_dsocr.cost.model import stages_of
    from pytest_dsocr.cost.workload import Workload
    from pytest_dsocr.engine.checkpoint import resolve

    known, page = resolve(checkpoint), load_image(case.page)
    family = known.architecture.family
    inputs = family.prepare(page, case.prompt, case.preset, known.tokenizer)
    work = Workload(page.size, case.preset, inputs.prompt_tokens - inputs.image_tokens, GENERATED_TOKENS)
    left = {"vision_fusion"} if inputs.has_vision else {"vision_fusion", *(stage.name for stage in family.of_views)}
    stages = stages_of(known.architecture, work, way=VENDOR)
    return {name: found.cost.matrix_flops for name, found in stages.items() if name not in left}


def _stage(what: str, live: int, computed: int) -> Comparison:
    if live == computed:
        return Comparison(what, Verdict.MATCH, f"{live:,} FLOPs")
    share = f" ({live / computed - 1:+.2%})" if computed else ""
    return Comparison(what, Verdict.WRONG, f"{live:,} FLOPs{share}; expected {computed:,}, as computed")
