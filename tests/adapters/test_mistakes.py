"""The suite of servers on a real one: all of it right, and each of thirty mistakes found by the checks that say so."""

import os
from pathlib import Path

import pytest

from pytest_dsocr.adapters.server import ServerSubject
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.pages.page_list import PAGES
from pytest_dsocr.reference.goldens import RECORDINGS, shipped_folder
from pytest_dsocr.reference.opening import Wanted, open_recorded
from pytest_dsocr.subjects.calls import watching
from pytest_dsocr.subjects.loading import load_subject
from pytest_dsocr.subjects.protocol import Setup
from suites.server.asked import Asked
from suites.server.test_server import CHECKS, checked
from tests.adapters.mistakes import PARTS

FOUND = {
    "counts-no-image": "prompt_tokens",
    "counts-pages-alike": "prompt_tokens",
    "counts-the-page-before": "prompt_tokens streaming",
    "counts-one-less": "max_tokens",
    "six-crops": "prompt_tokens",
    "total-is-the-prompt": "max_tokens",
    "base-for-gundam": "prompt_tokens logits continuation",
    "ignores-exif": "exif",
    "small-jpeg": "jpeg exif",
    "page-of-the-host": "url",
    "page-of-the-size": "in_turn",
    "samples-always": "temperature logprobs",
    "no-ngram-rule": "ngram_rule",
    "ngram-rule-of-30": "ngram_rule",
    "one-token-more": "max_tokens",
    "ends-at-100": "temperature",
    "says-stop": "finish_reason",
    "says-stop-behind-pieces": "streaming",
    "ignores-stop": "stop",
    "keeps-the-stop": "stop",
    "mixes-pages": "at_once",
    "pads-beside-longer": "beside_a_long_one",
    "token-of-the-page-before": "in_turn",
    "loses-the-last-piece": "streaming",
    "sends-a-piece-twice": "streaming",
    "cuts-characters": "",
    "pieces-without-tokens": "streaming",
    "logprobs-of-the-next": "logprobs",
    "logprobs-of-heat": "logits",
    "unsorted-logprobs": "logprobs",
}
QUICK = ("counts-one-less", "six-crops", "page-of-the-host", "keeps-the-stop", "logprobs-of-heat", "says-stop")
"""Those that cost no page but one."""
ALL = pytest.mark.skipif("DSOCR_MISTAKES" not in os.environ, reason="takes minutes of a core; set DSOCR_MISTAKES")


def asked_of(url: str, folder: Path, *pages: str) -> Asked:
    with watching([]):
        server = load_subject(f"{url}/v1?preset={{preset}}", Setup())
    assert isinstance(server, ServerSubject)
    cases = [make_case(PAGES / "generated" / f"{page}.png", "markdown", "gundam") for page in pages]
    reference = open_recorded([shipped_folder() / RECORDINGS], Wanted(resolve("mini"), fixed=frozenset()))
    return Asked(server, cases, reference, resolve("mini").tokenizer, tolerances("float32"), folder)


def test_of_a_right_server_every_check_is_made_and_none_is_wrong(address: str, tmp_path: Path) -> None:
    asked = asked_of(f"{address}/right", tmp_path, "invoice_016")
    found = {name: checked(name, asked).verdict for name in CHECKS}
    assert [name for name, verdict in found.items() if verdict not in (Verdict.MATCH, Verdict.DRIFT)] == []


@pytest.mark.parametrize("name", QUICK)
def test_a_mistake_is_found(name: str, address: str, tmp_path: Path) -> None:
    asked = asked_of(f"{address}/{name}", tmp_path, "invoice_016")
    assert {checked(check, asked).verdict for check in FOUND[name].split()} == {Verdict.WRONG}


@ALL
@pytest.mark.parametrize("name", PARTS)
def test_a_mistake_is_found_by_its_checks_alone(name: str, address: str, tmp_path: Path) -> None:
    asked = asked_of(f"{address}/{name}", tmp_path, "invoice_016", "slide_1011", "figures_201")
    found = [name for name in CHECKS if checked(name, asked).verdict is Verdict.WRONG]
    assert found == FOUND[name].split()
