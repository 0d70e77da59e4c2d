"""Property tests that run briefly in CI, and for long where ``DSOCR_FUZZ_EXAMPLES`` names many examples."""

import os

from hypothesis import settings

fuzz = settings(max_examples=int(os.environ.get("DSOCR_FUZZ_EXAMPLES", "150")), database=None, deadline=None)
