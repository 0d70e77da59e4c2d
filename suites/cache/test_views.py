"""Vision tokens of a view, which must not depend on other views or on the amount of ink in it.

The vendor's ``forward`` raises an error if a prompt has several images, or crops with pixels that sum to zero. A
subject may refuse them too, or encode every view, as the vendor's code for servers does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from pytest_dsocr.compare.verdict import Reason, as_expected, not_compared
from pytest_dsocr.contract import GRID, PIXELS, ROWS
from pytest_dsocr.models.spec import FUSION, ModelSpec
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.records.case import make_case
from pytest_dsocr.records.config import SubjectFaultError

from .ways import Ways

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_dsocr.subjects.checked import CheckedSubject

pytestmark = pytest.mark.dsocr_level("L2")

MANY = (3, 3)
"""Columns and rows of a large grid."""


@pytest.mark.dsocr_slow
def test_a_crop_among_nine_is_seen_as_among_two(
    tmp_path: Path, family: ModelSpec, ways: Ways, dsocr_subject: Any, dsocr_check: Check
) -> None:
    """Repeat the two crops of a page to fill a grid of nine, and compare the first encoder's features."""
    from pytest_dsocr.subjects.checked import CheckedSubject, copies

    from ..contract.pages import write_wide

    checked = CheckedSubject(dsocr_subject)
    inputs = checked.inputs(make_case(write_wide(tmp_path, family), "markdown", "gundam", family=family))
    few = checked.vision(copies(inputs))
    columns, rows = MANY
    order = [k % len(inputs["images_crop"]) for k in range(columns * rows)]
    grid = inputs["images_spatial_crop"].new_tensor([MANY])
    many = checked.vision({**inputs, "images_crop": inputs["images_crop"][order], "images_spatial_crop": grid})
    first = f"{family.of_views[0].name}.crops"
    if first not in few or first not in many:
        dsocr_check([not_compared(first, Reason.NOT_OFFERED)])
        return
    dsocr_check(
        ways.vision(f"{first}/crop {k} of nine", many[first][k], few[first][of], f"{family.of_views[0].name}.page")
        for k, of in enumerate(order)
    )


def test_a_blank_page_is_looked_at(tmp_path: Path, family: ModelSpec, dsocr_subject: Any, dsocr_check: Check) -> None:
    """Count the features of a white page, which the vendor's code encodes like any other."""
    from pytest_dsocr.subjects.checked import CheckedSubject

    Image.new("RGB", (600, 800), "white").save(tmp_path / "blank.png")
    checked = CheckedSubject(dsocr_subject)
    inputs = checked.inputs(make_case(tmp_path / "blank.png", "markdown", family.quickest, family=family))
    expected = int(inputs["images_seq_mask"].sum())
    found = len(checked.vision(inputs).get("vision_fusion", ()))
    why = "a feature for each image token: only a page with pixels that sum to exactly zero is taken for no image"
    dsocr_check([as_expected("vision_fusion/blank page", found, expected, why)])


@pytest.mark.dsocr_slow
def test_crops_that_sum_to_zero_are_seen(
    tmp_path: Path, family: ModelSpec, dsocr_subject: Any, dsocr_check: Check
) -> None:
    from pytest_dsocr.subjects.checked import CheckedSubject

    from ..contract.pages import write_page

    checked = CheckedSubject(dsocr_subject)
    inputs = checked.inputs(make_case(write_page("halves", tmp_path), "markdown", "gundam", family=family))
    expected = int(inputs["images_seq_mask"].sum())
    fused = _unless_refused(checked, inputs)
    why = "a feature for each image token: the vendor's code takes crops that sum to zero for none, and raises"
    found = expected if fused is None else len(fused)
    dsocr_check([as_expected("vision_fusion/crops of sum zero", found, expected, why)])


@pytest.mark.dsocr_slow
def test_images_of_one_prompt_are_seen_as_each_by_itself(
    tmp_path: Path, family: ModelSpec, ways: Ways, dsocr_subject: Any, dsocr_check: Check
) -> None:
    """Join a page with crops, a page without, and the negative of the first into one prompt."""
    import torch

    from pytest_dsocr.subjects.checked import CheckedSubject

    from ..contract.pages import write_page, write_wide

    checked, pages = CheckedSubject(dsocr_subject), (write_wide(tmp_path, family), write_page("tiny", tmp_path))
    cut, whole = (checked.inputs(make_case(page, "markdown", "gundam", family=family)) for page in pages)
    images = (cut, whole, {**cut, **{name: -cut[name] for name in PIXELS}})
    joined = {name: torch.cat([one[name] for one in images]) for name in (GRID, "images_ori")}
    joined |= {name: torch.cat([one[name] for one in images], 1) for name in ROWS}
    joined["images_crop"] = torch.cat([one["images_crop"] for one in images if int(one[GRID].prod()) > 1])
    fused = _unless_refused(checked, joined)
    expected = torch.cat([checked.vision(one)["vision_fusion"] for one in images])
    found = expected if fused is None else fused
    dsocr_check([ways.vision("vision_fusion/three images", found, expected, FUSION)])


def _unless_refused(checked: CheckedSubject, inputs: Mapping[str, Tensor]) -> Tensor | None:
    """Return the features of all images of a prompt in order, none if it sees none; None if it refuses the prompt."""
    try:
        return checked.vision(inputs).get("vision_fusion", inputs["images_ori"].new_zeros(0, 1))
    except SubjectFaultError:
        return None
