"""Several pages in one prompt, compared with the recorded inputs of the vendor's ``infer_multi``."""

import shutil
from pathlib import Path

import pytest

from pytest_dsocr.compare.verdict import as_expected, equal
from pytest_dsocr.contract import PIXELS
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.records.config import Config

from .asked import Asked, Drawn
from .facts import Facts, compare_image_tokens

BASE_PX = 1024
SEEN = f"every bit: pages in the order of their file names, each padded to {BASE_PX} px, not squashed and not cut"


@pytest.mark.dsocr_level("L1")
@pytest.mark.parametrize("pages", [2, 5])
def test_pages_at_one_place(
    pages: int,
    tmp_path: Path,
    family: ModelSpec,
    asked: Asked,
    drawn: Drawn,
    tokenizer: TextTokenizer,
    dsocr_config: Config,
    dsocr_check: Check,
) -> None:
    from pytest_dsocr.records.packing import unpack_inputs

    facts, text = Facts.read(dsocr_config.golden, family, "pages"), family.prompts[family.pages_prompt]
    wanted = pages, BASE_PX, text
    rows = facts.recorded["together"]
    [row] = [row for row in rows if (len(row["pages"]), row["image_size"], row["prompt"]) == wanted]
    for number, page in enumerate(map(drawn, row["pages"])):
        shutil.copy(page, tmp_path / f"{number}{page.suffix}")
    actual, recorded = asked(tmp_path, "base", family.pages_prompt), unpack_inputs(row, {})
    grids = actual.images_spatial_crop, recorded.images_spatial_crop
    dsocr_check(
        [
            *compare_image_tokens(
                actual, tokenizer.special.image, recorded.image_tokens, "image tokens of all pages together"
            ),
            as_expected("images_spatial_crop", *grids, "because several pages are never cut"),
            *(facts.with_origin(equal(what, getattr(actual, what), getattr(recorded, what), SEEN)) for what in PIXELS),
        ]
    )
