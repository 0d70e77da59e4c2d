"""A page with pixels that sum to zero: the vendor's code takes it for no image, and vision returns nothing."""

from typing import Any

import pytest

from pytest_dsocr.compare.verdict import as_expected
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.records.case import make_case

from .asked import Drawn, sizes_of

pytestmark = pytest.mark.dsocr_level("L2")


def test_vision_gives_nothing(drawn: Drawn, family: ModelSpec, dsocr_subject: Any, dsocr_check: Check) -> None:
    import torch

    from pytest_dsocr.subjects.checked import CheckedSubject

    subject = CheckedSubject(dsocr_subject)
    case = make_case(drawn("halves"), "markdown", sizes_of("tiny", family), family=family)
    with torch.no_grad():
        seams = sorted(subject.vision(subject.inputs(case)))
    dsocr_check([as_expected("vision_fusion/zero sum", seams, [], "as pixels that sum to zero are taken for no image")])
