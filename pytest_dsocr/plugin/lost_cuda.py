"""End of CUDA in the process of the tests, as by a failed assertion of a kernel: noted once, and the run stops."""

import pytest

from pytest_dsocr.base.errors import has_ended_cuda
from pytest_dsocr.plugin.stash import NOTES

WHAT_TO_DO = "what follows was not compared; run the subject in a process of its own: --dsocr-isolate"


def stop_without_cuda(item: pytest.Item, error: BaseException | None) -> None:
    """Note which test ended CUDA, and stop the run: every later use of the GPU would fail in the same way."""
    if item.session.shouldfail or not has_ended_cuda(error):
        return
    stage = f" ({named})" if (named := getattr(error, "stage", "")) else ""
    first = f"CUDA failed for good in the process of the tests, first in {item.nodeid}{stage}"
    item.config.stash.setdefault(NOTES, []).append(f"{first}; {WHAT_TO_DO}")
    item.session.shouldfail = "dsocr: without CUDA nothing can be compared"
