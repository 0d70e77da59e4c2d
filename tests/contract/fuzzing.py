"""Property tests of as many examples as ``DSOCR_FUZZ_EXAMPLES`` says, which are then new ones each time."""

import os

from hypothesis import settings

fuzz = settings(max_examples=int(os.environ.get("DSOCR_FUZZ_EXAMPLES", "150")))
