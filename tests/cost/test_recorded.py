"""The arithmetic is what the vendor's code was counted to compute, for every case that is recorded."""

from __future__ import annotations

import pytest

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.cost.decoder import VENDOR
from pytest_dsocr.cost.model import stages_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.counts import CountedCase, Counts, counts_file
from suites.contract.pages import PAGES
from tests.recordings import FOLDER

CHECKPOINTS = {"mini": "mini", "synthetic-small": "synthetic:small"}


@pytest.mark.parametrize("folder", CHECKPOINTS)
def test_every_recorded_case(folder: str) -> None:
    checkpoint = resolve(CHECKPOINTS[folder])
    cases = Counts.open(counts_file(FOLDER / folder, "eager")).cases
    assert len(cases) > 20
    for name, counted in cases.items():
        case = counted.described
        work = Workload.of_prompt(
            size_of(counted), case["prompt"], case["preset"]["name"], checkpoint.tokenizer, generated_tokens=2
        )
        stages = stages_of(checkpoint.architecture, work, way=VENDOR)
        expected = {stage: one.cost.matrix_flops for stage, one in stages.items() if stage != "vision_fusion"}
        assert expected == counted.flops, name


def size_of(counted: CountedCase) -> tuple[int, int]:
    page = str(counted.described["page"])
    found = {path.name: path for path in shipped("all")}
    return load_image(found[page] if page in found else PAGES[page.partition(".")[0]]()).size
