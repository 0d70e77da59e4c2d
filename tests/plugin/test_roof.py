"""The roof over a run's times: from the machine's GPU, the checkpoint's config and the page's size."""

from __future__ import annotations

import pytest

from pytest_dsocr.cost.roofline import Roof, devices
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.places import architecture_of
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.perf.rounds import Measured
from pytest_dsocr.plugin.perf_run import roof_of
from tests.perf.made import measured

PAGE = next(path for path in shipped("all") if path.stem == "invoice_016")
COUNTS = {"tokens.prompt": 729, "tokens.image": 693, "tokens.output": 64}


@pytest.fixture
def run() -> Measured:
    return measured({"decode": [14.0] * 3}, COUNTS)


@pytest.mark.parametrize("checkpoint", ["mini", "synthetic:full"])
def test_it_is_that_of_the_checkpoint_and_the_page(checkpoint: str, run: Measured) -> None:
    work = Workload((1140, 1101), DEFAULT.presets["gundam"], 36, 64)
    assert roof_of(run, checkpoint, PAGE) == Roof.of(architecture_of(checkpoint), work, devices()["h200"])


@pytest.mark.parametrize("machine", [{"gpu": "NVIDIA B200"}, {"gpu": ""}])
def test_an_unknown_gpu_has_none(machine: dict[str, str]) -> None:
    assert roof_of(measured({"decode": [14.0] * 3}, COUNTS, machine=machine), "mini", PAGE) is None
