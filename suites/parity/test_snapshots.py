"""Results of the subject, compared with its last accepted ones from commit to commit.

Snapshots are keyed by checkpoint, device, dtype and attention. Pass --snapshot-update to accept new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.plugin.check import Check

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_dsocr.records.case import Case
    from pytest_dsocr.records.subject_result import KvSize, SubjectResult

pytestmark = pytest.mark.dsocr


def test_reading(dsocr_case: Case, dsocr_reading: SubjectResult, dsocr_snapshot: Any, dsocr_check: Check) -> None:
    """Compare labels, boxes and the length of the text; each limit of new tokens has its own snapshot."""
    from pytest_dsocr.plugin.snapshots import compare_snapshot, spans_of

    reading = {
        "page_sha256": dsocr_case.page_sha256,
        "max_new_tokens": dsocr_case.max_new_tokens,
        "characters": len(dsocr_reading.text),
        "boxes": sum(len(span.boxes) for span in dsocr_reading.spans),
        "spans": spans_of(dsocr_reading.spans),
    }
    if (ceiling := dsocr_case.max_new_tokens) != dsocr_case.family.decoding.max_new_tokens:
        dsocr_snapshot = dsocr_snapshot(name=f"{ceiling} tokens")
    dsocr_check([compare_snapshot("reading", dsocr_snapshot, reading)])


@pytest.mark.dsocr_level("L1")
def test_prompt(dsocr_inputs: Mapping[str, Tensor], dsocr_snapshot: Any, dsocr_check: Check) -> None:
    """Compare the numbers of prompt and image tokens, and the grid of crops."""
    from pytest_dsocr.plugin.snapshots import compare_snapshot

    mask, grid = dsocr_inputs["images_seq_mask"], dsocr_inputs["images_spatial_crop"]
    prompt = {"prompt_tokens": mask.shape[-1], "image_tokens": int(mask.sum()), "grid": grid.tolist()}
    dsocr_check([compare_snapshot("prompt", dsocr_snapshot, prompt)])


@pytest.mark.dsocr_level("L2")
def test_cache(dsocr_kv_size: KvSize, dsocr_snapshot: Any, dsocr_check: Check) -> None:
    """Compare the bytes of a position in the key-value cache."""
    from pytest_dsocr.plugin.snapshots import compare_snapshot

    cache = {"layers": dsocr_kv_size.layers, "kv_bytes_per_token": dsocr_kv_size.bytes_per_token}
    dsocr_check([compare_snapshot("cache", dsocr_snapshot, cache)])
