"""The FLOPs that are shipped are those of the vendor's real code, on the CPU in either dtype."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.counts import Counts, counts_file
from pytest_dsocr.reference.environment import find_environment
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.recorded_case import case_in
from suites.contract.pages import write_page
from tests.recordings import FOLDER
from tests.vendor_live.conftest import vendor_folder

SMALL = (
    *("portrait-tiny-free", "portrait-small-markdown", "portrait-base-markdown", "portrait-large-markdown"),
    *("portrait-gundam-free", "tiny-gundam-markdown", "landscape-gundam-markdown"),
)
MINI = ("figures_201-gundam-markdown", "receipt_086-gundam-markdown", "invoice_016-gundam-markdown")


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def small(dtype: str) -> Iterator[LiveReference]:
    with live("synthetic:small", dtype) as reference:
        yield reference


@pytest.fixture(scope="module")
def mini(dtype: str) -> Iterator[LiveReference]:
    with live("mini", dtype) as reference:
        yield reference


def live(checkpoint: str, dtype: str) -> LiveReference:
    return LiveReference(vendor_folder(), checkpoint, python=find_environment(None), dtype=dtype)


@pytest.mark.parametrize("case_id", SMALL)
def test_every_preset_costs_what_is_recorded(small: LiveReference, case_id: str, tmp_path: Path) -> None:
    write_page(case_id.partition("-")[0], tmp_path)
    check(small, "synthetic-small", case_id, tmp_path)


@pytest.mark.parametrize("case_id", MINI)
def test_a_page_of_the_embedded_checkpoint_costs_what_is_recorded(mini: LiveReference, case_id: str) -> None:
    [page] = [page for page in shipped("all") if page.stem == case_id.partition("-")[0]]
    check(mini, "mini", case_id, page.parent)


def check(reference: LiveReference, checkpoint: str, case_id: str, pages: Path) -> None:
    counted = Counts.open(counts_file(FOLDER / checkpoint, "eager"))
    case = case_in(pages, counted.cases[case_id].described)
    found = counted.find(case)
    assert found is not None, "the page is another"
    assert reference.flops(case) == found.flops
