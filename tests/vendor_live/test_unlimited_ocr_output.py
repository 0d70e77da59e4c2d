"""Outputs and pages of Unlimited-OCR, generated ones, against the vendor's code (``DSOCR_VENDOR_UNLIMITED_OCR``)."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_dsocr.contract.prompt import EOS
from pytest_dsocr.models import MODELS
from pytest_dsocr.reference.vendor_code.code import VendorCode, load_vendor_code
from tests.contract import test_artifacts, test_markup
from tests.contract.fuzzing import fuzz
from tests.contract.recorded import IMAGE, PAGE_SIZE, UNLIMITED, Recorded
from tests.vendor_live.conftest import vendor_folder
from tests.vendor_live.record_postprocess import record

pytestmark = pytest.mark.filterwarnings("ignore")  # the vendor's code warns on every recent torch

CODE: list[VendorCode] = []
WHOLE = ["<|det|>image [1, 2, 300, 40]<|/det|>", "<|det|> title [5, 6, 700, 80] <|/det|>", IMAGE]
PIECES = [
    *test_markup.MARKS,
    *test_markup.IN_DET,
    *WHOLE,
    "<PAGE>",
    EOS,
    "image",
    " ",
    "标",
    "\\coloneqq",
    "[[1, 2, 9, 8]]",
]
"""None of them adds up to arithmetic, which the vendor evaluates and we refuse."""


def vendor() -> VendorCode:
    """Return the vendor's code, imported once: hypothesis asks for it beside pytest's fixtures."""
    if not CODE:
        CODE.append(load_vendor_code(vendor_folder(MODELS["unlimited_ocr"])))
    return CODE[0]


@fuzz
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join), st.integers(0, 3))
@example("<PAGE>" + WHOLE[0] * 2 + "<PAGE>" + WHOLE[2] + "\n", 2)
def test_outputs_are_read_and_written_as_the_vendor_does(text: str, pages: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        seen = record(vendor(), text, PAGE_SIZE, Path(folder), [[90, 60], [60, 90], [50, 50]][:pages])
        recorded = Recorded(UNLIMITED, **seen)
        test_markup.test_spans_and_boxes_are_the_vendors(recorded)
        test_artifacts.test_the_files_are_the_vendors(recorded, Path(folder, "ours"))
