"""Texts that a subject's ``text_of`` makes from tokens of rare texts."""

from typing import Any

import pytest

from pytest_dsocr.compare.verdict import Reason, not_compared
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.plugin.check import Check

pytestmark = pytest.mark.dsocr_level("L2")

TEXTS = {
    "characters of several tokens": "稀土 \N{GRINNING FACE} ἀρχή naïve",
    "blanks in front of stops": "one , two . three ! four ? five 's n't",
    "markup": "<|ref|>title<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\n# A",
    "a table": "<table><tr><td>1</td><td> 2 </td></tr></table>",
    "line ends and tabs": "one\n\n\ntwo  three\tfour",
    "entities": "<td>R&amp;D &lt; 3 &nbsp;&#8211;</td>",
    "LaTeX": "\\( a \\coloneqq b \\) and \\[ \\frac{1}{2} \\]",
}


@pytest.mark.parametrize("kind", TEXTS)
def test_tokens_mean_the_text_that_they_are_of(
    kind: str, tokenizer: TextTokenizer, dsocr_subject: Any, dsocr_check: Check
) -> None:
    from pytest_dsocr.compare.text import compare_text
    from pytest_dsocr.subjects.checked import CheckedSubject

    asked = CheckedSubject(dsocr_subject)
    if not asked.tells_text:
        dsocr_check([not_compared("text", Reason.NOT_OFFERED)])
        return
    dsocr_check([compare_text(asked.text_of(tokenizer.encode(TEXTS[kind])), TEXTS[kind], 0.0)])
