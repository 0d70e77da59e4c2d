"""The engine compared with recordings of the vendor's code, or with its files in ``DSOCR_VENDOR`` run live.

Random weights read drawn pages. The embedded checkpoint reads a page of each grid that ``suites/parity`` does not
cover, to the last token, or every shipped page if run live.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tokens import is_tie
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract.image import load_image, resampling
from pytest_dsocr.contract.presets import crop_grid
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.deepseek_ocr.sizes import sizes_of
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.reference.opening import WantedReference, open_reference
from pytest_dsocr.reference.protocol import Reference
from pytest_dsocr.reference.recording import Recording
from pytest_dsocr.run.sides import ask
from pytest_dsocr.subjects.engine import EngineSubject
from suites.contract.pages import write_page
from tests.held import held
from tests.recordings import FOLDER, find_recording

LIVE = os.environ.get("DSOCR_VENDOR")
RANDOM = "synthetic:small"
RECORDING = find_recording(FOLDER, WantedReference(resolve(RANDOM)).key, resampling())
OF_GPU = find_recording(FOLDER, WantedReference(resolve(RANDOM), "nvidia-h200", "bfloat16").key, resampling())
EACH = (
    *("portrait-tiny-free", "portrait-small-markdown", "portrait-large-markdown"),
    *("tiny-gundam-markdown", "landscape-gundam-markdown", "portrait-gundam-free"),
)
"""Cases with each prompt and size of a view, and ``gundam`` without crops, with a row, and with rows and columns.

Other pages differ only in their inputs, which ``contract/test_inputs.py`` compares with the vendor's.
"""
OF_A_GPU = ("portrait-small-markdown", "landscape-gundam-markdown")
"""Cases of a GPU's recording, with crops and without."""
PAGES = shipped("all")
GRIDS = ("figures_009", "receipt_011", "receipt_086", "slide_032", "letter_helvetica", "list_1003")
"""Pages of the grids that the quick pages lack, one for each."""
AS_OTHER = f"unlimited_ocr:{MINI}"
OF_OTHER = ("figures_201", "letter_054", "tables_010")
"""Pages for Unlimited-OCR: figures without crops, 191 tokens with a ring of 128, and more than 9 crops."""
INPUTS = {"input_ids", "images_seq_mask", "images_spatial_crop", "images_crop", "images_ori", "dtypes"}
VISION = {"sam", "clip", "projector", "vision_fusion"}
ALWAYS_THERE = {
    *INPUTS,
    *("sam.page", "clip.page", "projector.page", "vision_fusion", "prefill", "prefill_best", "logits", "tokens"),
    *("text", "spans", "boxes", "result.mmd", "artefacts"),
}
MOST_FLIPS, MOST_REROUTED = 8, 2  # of 64 tokens


def case_of(recording: Recording, case_id: str, folder: Path) -> Case:
    """Draw the page of a recorded case, and return the case."""
    case = recording.cases[case_id].case(folder)
    assert write_page(case.page.stem, folder) == case.page
    return case


@pytest.fixture(scope="module")
def sides(request: pytest.FixtureRequest) -> Iterator[tuple[EngineSubject, Reference]]:
    """Yield the engine with a checkpoint, and the vendor's code."""
    wanted = WantedReference(resolve(request.param))
    live = LIVE if wanted.checkpoint.architecture.family is DEEPSEEK_OCR else ""
    reference = open_reference(Path(live or find_recording(FOLDER, wanted.key, resampling()).folder), wanted)
    yield EngineSubject(Engine.from_checkpoint(request.param)), reference
    reference.close()


def assert_all(report: CaseReport) -> None:
    """Assert that everything was compared and is equal within the limits."""
    assert {one.what for one in report.comparisons} >= ALWAYS_THERE
    bad = [one for one in report.comparisons if not one.passes or one.verdict is Verdict.TIE_FLIP]
    assert not bad, "\n".join(f"{one.what}: {one.verdict}: {one.measured}" for one in bad)


@pytest.mark.dsocr_slow
@pytest.mark.parametrize("sides", [RANDOM], indirect=True)
@pytest.mark.parametrize("case_id", RECORDING.cases if LIVE else EACH)
def test_engine_is_the_vendors(sides: tuple[EngineSubject, Reference], case_id: str, tmp_path: Path) -> None:
    asked = ask(*sides, case_of(RECORDING, case_id, tmp_path))
    assert_all(judge(asked, replace(tolerances("float32"), seam=1e-5, logits=1e-5)))


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(
    ("sides", "page"),
    [
        *(pytest.param(MINI, page, id=page.stem) for page in PAGES if LIVE or page.stem in GRIDS),
        *(pytest.param(AS_OTHER, page, id=f"{AS_OTHER}-{page.stem}") for page in PAGES if page.stem in OF_OTHER),
    ],
    indirect=["sides"],
)
def test_engine_of_mini_is_the_vendors(sides: tuple[EngineSubject, Reference], page: Path) -> None:
    arch = model_of(sides[0].engine).arch
    report = judge(ask(*sides, make_case(page, "markdown", "gundam", family=arch.family)), tolerances("float32"))
    assert_all(report)
    deep = sum("/" in one.what for one in report.comparisons)
    views = 1 + any(one.what == "sam.crops" for one in report.comparisons)
    assert deep == views * (sizes_of(arch).sam.layers + sizes_of(arch).clip.layers) + arch.decoder.num_hidden_layers


@pytest.mark.dsocr_slow
def test_the_engine_is_the_vendors_model_in_the_published_sizes() -> None:
    """Read random weights in the published sizes of vision, for ports that know no others."""
    assert held("engine", "figures_201", 4, of="synthetic:published", preset="tiny").passes


def test_every_grid_of_the_shipped_pages_is_read() -> None:
    grids = {page: crop_grid(*load_image(page).size, DEEPSEEK_OCR.tiling) for page in PAGES}
    read = {grid for page, grid in grids.items() if page.stem in GRIDS or page in shipped("dev-3")}
    assert read == {*grids.values()}


@pytest.mark.dsocr_slow
@pytest.mark.parametrize("sides", [RANDOM], indirect=True)
@pytest.mark.parametrize("case_id", OF_GPU.cases if LIVE else OF_A_GPU)
def test_engine_in_float32_is_the_vendors_on_a_gpu(
    sides: tuple[EngineSubject, Reference], case_id: str, tmp_path: Path
) -> None:
    """Allow a drift of a percent in vision, and few tokens changed by another expert."""
    case = case_of(OF_GPU, case_id, tmp_path)
    limits = tolerances("float32", "bfloat16", same_key=False)
    recorded = open_reference(OF_GPU.folder, WantedReference(resolve(RANDOM)))
    report = judge(ask(sides[0], recorded, case), limits)
    found = {one.what: one for one in report.comparisons}
    assert {what for what, one in found.items() if one.verdict is Verdict.MATCH} >= INPUTS
    seams = {what: one.verdict for what, one in found.items() if what.partition(".")[0] in VISION}
    assert len(seams) in (4, 7)
    assert set(seams.values()) == {Verdict.DRIFT}
    assert (found["vision_fusion"].error or 0) > 1e-3, "no bf16 was in this"
    expected, forced = report.exchange.expected, report.exchange.answer.forced
    assert forced is not None
    differing = [k for k, step in enumerate(expected.steps) if forced[k].token != step.token]
    assert len(differing) <= MOST_FLIPS
    assert sum(not is_tie(forced[k], expected.steps[k], limits) for k in differing) <= MOST_REROUTED
