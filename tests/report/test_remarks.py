"""Notes about a whole run: a ring that no page filled, and a live reference that is not the vendor's."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from msgspec import structs

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.models.unlimited_ocr import FAMILY as UNLIMITED_OCR
from pytest_dsocr.reference.drift import read_json
from pytest_dsocr.reference.goldens import anchors_file
from pytest_dsocr.reference.vendor_code.runtime import check_ring
from pytest_dsocr.report.outcomes import remarks
from pytest_dsocr.report.run_sides import RunSides
from tests.report.made import case_payload, run_payload

RING = UNLIMITED_OCR.cache.ring or 0
BOXES = {"reference": 1, "subject": 1}


def said(run: RunSides | None, *lengths: int) -> list[str]:
    """Return the notes of a run with pages of these lengths in tokens."""
    cases = [case_payload(f"page_{n}", boxes=BOXES, tokens={"reference": n, "subject": None}) for n in lengths]
    return [*remarks(cases, run)]


@pytest.mark.parametrize(
    ("checkpoint", "lengths", "notes"),
    [
        ("unlimited_ocr:mini", (3, RING), 1),
        ("unlimited_ocr:mini", (3, RING + 1), 0),
        ("unlimited_ocr:mini", (), 0),
        ("mini", (3, RING), 0),
    ],
)
def test_a_ring_that_no_page_fills_is_reported(checkpoint: str, lengths: tuple[int, ...], notes: int) -> None:
    found = said(run_payload(checkpoint=checkpoint), *lengths)
    assert [f"ring of {RING}" in one for one in found] == [True] * notes


def test_files_of_a_live_reference_that_are_not_the_vendors_are_named() -> None:
    files = {name: file.sha256 for name, file in read_json(anchors_file(UNLIMITED_OCR)).files.items()}
    first, *_ = files
    for changed, kind, notes in (({}, "live", 0), ({first: "0" * 64}, "live", 1), ({first: "0" * 64}, "recorded", 0)):
        run = run_payload(reference=kind)
        made = structs.replace(run, provenance=replace(run.provenance, vendor_sha256={**files, **changed}))
        assert [first in one for one in said(made, RING + 1)] == [True] * notes


@pytest.mark.parametrize(("config", "ring"), [({}, RING), ({"_ring_window": None}, RING), ({"_ring_window": 64}, RING)])
def test_code_that_runs_without_the_ring_is_no_reference(config: dict[str, int], ring: int) -> None:
    with pytest.raises(DsocrError, match=f"the model keeps {ring}"):
        check_ring(SimpleNamespace(config=SimpleNamespace(**config)), ring)
    check_ring(SimpleNamespace(config=SimpleNamespace(**config)), None)
    check_ring(SimpleNamespace(config=SimpleNamespace(_ring_window=ring)), ring)
