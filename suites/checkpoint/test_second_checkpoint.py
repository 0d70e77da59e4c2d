"""Results of the subject on a second, awkward checkpoint, compared with the vendor's.

The module ``made`` describes the checkpoint. The comparison in bfloat16 needs a subject with that in its ``dtypes``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.plugin.check import Check
from pytest_dsocr.plugin.stash import LOADED
from pytest_dsocr.subjects.protocol import NotOfferedError

from .made import PAGES

if TYPE_CHECKING:
    from .second import Second

pytestmark = pytest.mark.dsocr


@pytest.mark.dsocr_slow
@pytest.mark.parametrize("dtype", PAGES["tiny"])
def test_second_checkpoint(
    dtype: str, request: pytest.FixtureRequest, second: Second, dsocr_subject: Any, dsocr_check: Check
) -> None:
    if request.config.stash.get(LOADED, None) is not dsocr_subject:
        raise NotOfferedError("not offered: another checkpoint; the subject comes from a fixture")
    reference = second.reference(dtype)
    dsocr_check.config, dsocr_check.reference = second.config_in(dtype), reference
    dsocr_check(second.report(dtype, reference))
