"""The shipped recordings serve whoever installs the package, whichever Pillow comes with it."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.cost.decoder import VENDOR
from pytest_dsocr.cost.model import stages_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.observation.provenance import Key, Provenance, slug
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.counts import Counts, counts_file
from pytest_dsocr.reference.recording import MANIFEST, Recording
from suites.contract.pages import PAGES, write_page
from tests.recordings import FOLDER, find_recording

FLOP_TOKENS = 2
"""The prefill's, and one of a decode step."""
MADE = [
    Provenance.from_json(json.loads(path.read_text(encoding="utf-8"))["provenance"])
    for path in sorted(FOLDER.glob(f"*/[!.]*/{MANIFEST}"))
]
KEYS = sorted({made.key for made in MADE}, key=str)
ONE_WAY, OTHER_WAY = sorted({made.resampling for made in MADE})
"""How Pillow resizes before and since 13.0."""


@cache
def recorded(key: Key, resampling: str) -> Recording:
    return find_recording(FOLDER, key, resampling)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_a_key_is_recorded_under_every_pillow_and_what_it_resizes_alike_is_read_alike(key: Key) -> None:
    """To the bit: two recordings of a key differ in Pillow, and in nothing else. A single page is resized alike."""
    one, other = recorded(key, ONE_WAY).cases, recorded(key, OTHER_WAY).cases
    assert list(one) == list(other) != []
    pairs = [(case.observation, other[case_id].observation) for case_id, case in one.items()]
    alike = [(actual, expected) for actual, expected in pairs if actual.inputs.has_pixels_of(expected.inputs)]
    assert 0 < len(alike) < len(pairs) or len(alike) == len(pairs) == 1
    for actual, expected in alike:
        assert actual.steps == expected.steps
        assert actual.output.text == expected.output.text
        assert {name: seam.sha256 for name, seam in actual.seams.items()} == {
            name: seam.sha256 for name, seam in expected.seams.items()
        }


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_every_case_has_its_flops_and_they_are_those_of_arithmetic(key: Key) -> None:
    counted = Counts.open(counts_file(FOLDER / slug(key.checkpoint), key.attention)).cases
    checkpoint = None if key.checkpoint == "awkward" else resolve(key.checkpoint)
    for case_id, case in recorded(key, ONE_WAY).cases.items():
        assert counted[case_id].described == case.described
        assert counted[case_id].differences(recorded(key, OTHER_WAY).provenance) == []
        assert counted[case_id].flops["decode"] > 0
        if checkpoint:
            size, asked = pages()[case.described["page"]], case.case(FOLDER)
            prompt = next(name for name, text in DEFAULT.prompts.items() if text == asked.prompt)
            work = Workload.of_prompt(
                size, prompt, asked.preset.name, checkpoint.tokenizer, generated_tokens=FLOP_TOKENS
            )
            stages = stages_of(checkpoint.architecture, work, way=VENDOR)
            expected = {name: cost.cost.matrix_flops for name, cost in stages.items() if name != "vision_fusion"}
            assert counted[case_id].flops == expected, case_id


@cache
def pages() -> dict[str, tuple[int, int]]:
    """The sizes of all pages that are recorded, by the file's name."""
    with TemporaryDirectory() as folder:
        drawn = [write_page(page, Path(folder)) for page in PAGES]
        return {page.name: load_image(page).size for page in (*drawn, *shipped("all"))}
