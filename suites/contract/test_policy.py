"""Choice of tokens and end of decoding, compared with the arguments of the vendor's ``generate``."""

from typing import Any

import pytest

from pytest_dsocr.compare.verdict import Reason, as_expected, equal, not_compared
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.plugin.check import Check

from .facts import Facts

pytestmark = pytest.mark.dsocr_level("L2")


def test_no_ngram_of_the_vendors_length_occurs_twice(facts: Facts, dsocr_subject: Any, dsocr_check: Check) -> None:
    policy = getattr(dsocr_subject, "policy", None)
    if policy is None:
        dsocr_check([not_compared("policy/no_repeat_ngram_size", Reason.NOT_OFFERED)])
        return
    expected = facts.recorded["generate"]["infer"].get("no_repeat_ngram_size", 0)
    compared = equal("policy/no_repeat_ngram_size", policy.no_repeat_ngram_size, expected, f"{expected} tokens")
    dsocr_check([facts.with_origin(compared)])


def test_the_end_is_eos(tokenizer: TextTokenizer, dsocr_subject: Any, dsocr_check: Check) -> None:
    policy = getattr(dsocr_subject, "policy", None)
    if policy is None:
        dsocr_check([not_compared("policy/eos_id", Reason.NOT_OFFERED)])
        return
    dsocr_check([as_expected("policy/eos_id", policy.eos_id, tokenizer.special.eos, "the vocabulary's EOS")])
