"""Checks of a server's API against the vendor's code, OpenAI's reference, or the server's other answers."""

from collections.abc import Callable, Mapping

import pytest

from pytest_dsocr.compare.verdict import Comparison
from pytest_dsocr.plugin.check import Check

from . import company, counts, logprobs, pictures, sampling, several
from .asked import Asked, not_offered

CHECKS: Mapping[str, Callable[[Asked], Comparison]] = {
    one.__name__: one
    for one in (
        *(counts.prompt_tokens, counts.max_tokens, counts.finish_reason),
        *(sampling.temperature, sampling.ngram_rule, sampling.stop, sampling.streaming),
        *(company.in_turn, company.at_once, company.beside_a_long_one),
        *(pictures.jpeg, pictures.exif, pictures.url),
        *(several.two_images, several.typed_mark),
        *(logprobs.logprobs, logprobs.logits, logprobs.continuation),
    )
}


def checked(name: str, asked: Asked) -> Comparison:
    """Run one check; a request that the server refuses is not offered."""
    from pytest_dsocr.adapters.completion import FAILED, StatusError

    try:
        return CHECKS[name](asked)
    except StatusError as refused:
        if refused.status >= FAILED:
            raise
        return not_offered(name, str(refused))


@pytest.mark.parametrize("name", CHECKS)
def test_the_server(name: str, asked: Asked, dsocr_check: Check) -> None:
    dsocr_check([checked(name, asked)])
