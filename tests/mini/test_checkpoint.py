"""The shipped checkpoint: small, of every kind of part, trained in each of them, and a reader of its pages."""

from __future__ import annotations

from pathlib import Path

from ci.training.page import load_page
from ci.training.quality import Quality, measure
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI, MINI_FOLDER
from pytest_dsocr.engine.weights import read_headers
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.opening import Wanted
from tests.recordings import FOLDER, find_recording

MOST_BYTES = 24 * 2**20
READ = ("invoice_016", "receipt_086", "figures_201")
"""Pages of few words, in grids that it was trained on."""


def test_it_is_small_and_in_bf16() -> None:
    assert sum(path.stat().st_size for path in MINI_FOLDER.iterdir()) <= MOST_BYTES
    assert {tensor.dtype for tensor in read_headers(MINI_FOLDER).values()} == {"BF16"}


def test_it_reads_and_stops() -> None:
    """By what the vendor's code was recorded to read with it, which is what the session reads."""
    recorded = find_recording(FOLDER, Wanted(resolve(MINI)).key, resampling()).cases
    pages = [path for path in shipped("dev-20") if path.stem in READ]
    total = Quality()
    for path in pages:
        total += _quality(path, recorded[make_case(path, "markdown", "gundam").id].observation)
    assert (total.pages, total.exact_pages, total.ended, total.true_boxes) == (3, 3, 3, 17)
    assert total.matched_boxes >= 14
    assert total.labelled_boxes >= 14
    assert total.iou_sum / total.matched_boxes > 0.9
    assert total.errors <= 0.33 * total.characters


def _quality(path: Path, seen: Observation) -> Quality:
    truth = parse(load_page(path).answer(grounded=True))
    return measure(truth, parse(seen.output.text), ended=seen.token_ids[-1] == DEFAULT.special.eos)
