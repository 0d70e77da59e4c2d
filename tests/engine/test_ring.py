"""A ring of generated tokens where the last prompt token is decoded again; what a step sees of it is the vendor's.

``tests/cache/test_ring.py`` holds a cache to its ring, ``tests/parity`` every token and logit of a page behind one.
"""

import pytest
import torch

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.models import MODELS
from suites.contract.asked import own_preset
from suites.contract.pages import PAGES
from tests.engine.written import synthetic_engine


def test_the_last_prompt_token_may_be_decoded_again() -> None:
    ringed = synthetic_engine(MODELS["unlimited_ocr"].with_ring(8))
    state = ringed.prefill(ringed.prepare(PAGES["tiny"](), preset=own_preset("view", 256, 256, False)))
    before, keys = state.logits.clone(), state.cache.keys(1).clone()
    torch.testing.assert_close(ringed.pipeline.redecode_last(state), before, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state.cache.keys(1), keys, rtol=1e-4, atol=1e-5)
    with pytest.raises(DsocrError, match="9 tokens at once do not fit the end of a ring of 8; feed each alone"):
        model_of(ringed).decode(model_of(ringed).embed(torch.arange(9)[None]), state.cache)
