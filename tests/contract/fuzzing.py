"""Property tests that run briefly in CI, and for ``DSOCR_FUZZ_SECONDS`` each where that is set."""

import os
import time
from collections.abc import Callable

from hypothesis import settings


def fuzz(prop: Callable[..., None], examples: int = 150) -> Callable[[], None]:
    """Run a hypothesis property once, then with new examples until the time is up."""
    once = settings(max_examples=examples, database=None, deadline=None)(prop)

    def for_a_while() -> None:
        end_s = time.monotonic() + float(os.environ.get("DSOCR_FUZZ_SECONDS", "0"))
        once()
        while time.monotonic() < end_s:
            once()

    return for_a_while
