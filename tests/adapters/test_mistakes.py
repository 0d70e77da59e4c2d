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
from tests.adapters.mistakes import MISTAKES

QUICK = ("counts-one-less", "six-crops", "page-of-the-host", "keeps-the-stop", "logprobs-of-heat", "says-stop")
"""Those that cost no page but one; a whole run takes minutes of a core."""
NAMED, MADE = ([*MISTAKES][1:], CHECKS) if "DSOCR_MISTAKES" in os.environ else (QUICK, ())


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


@pytest.mark.parametrize("name", NAMED)
def test_a_mistake_is_found_where_it_can_be(name: str, address: str, tmp_path: Path) -> None:
    asked, own = asked_of(f"{address}/{name}", tmp_path, "invoice_016"), MISTAKES[name].found.split()
    found = [check for check in MADE or own if checked(check, asked).verdict is Verdict.WRONG]
    assert {*own} <= {*found}
    assert bool(found) is bool(own)
