"""The suite of servers on a real one: all of it right, and each of thirty mistakes found by the checks that say so."""

import os
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.adapters.server import ServerSubject, options_of
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.families import FAMILIES
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.subjects.calls import watching
from pytest_dsocr.subjects.loading import load_subject
from pytest_dsocr.subjects.protocol import Setup
from suites.server.asked import Asked
from suites.server.test_server import CHECKS, checked
from tests.adapters.mistakes import MISTAKES
from tests.faults.trial import reference

QUICK = ("right", "counts-one-less", "six-crops", "page-of-the-host", "keeps-the-stop", "logprobs-of-heat", "says-stop")
"""Those that cost no page but one; the others take a quarter of an hour of a loaded machine."""
IS_WHOLE = "DSOCR_MISTAKES" in os.environ


@pytest.mark.parametrize("name", MISTAKES if IS_WHOLE else QUICK)
def test_what_is_wrong_is_found_and_what_is_right_is_not(name: str, address: str, tmp_path: Path) -> None:
    with watching([]):
        server = load_subject(f"{address}/{name}/v1?preset={{preset}}", Setup())
    assert isinstance(server, ServerSubject)
    cases = [make_case(shipped("dev-3")[0], "markdown", "gundam")]
    asked = Asked(server, cases, reference(), resolve("mini").tokenizer, tolerances("float32"), tmp_path)
    own = MISTAKES[name].found.split()
    made = {check: checked(check, asked).verdict for check in (CHECKS if IS_WHOLE else own or CHECKS)}
    assert {made[check] for check in own} <= {Verdict.WRONG}
    assert own or Verdict.WRONG not in made.values()
    assert name != "right" or Verdict.NOT_COMPARED not in made.values()


@pytest.mark.parametrize("name", FAMILIES)
def test_odd_pages_are_asked_for_by_a_prompt_of_the_model(name: str, tmp_path: Path) -> None:
    unasked: Any = None
    family = FAMILIES[name]
    case = make_case(shipped("dev-3")[0], "markdown", "gundam", family=family)
    server = ServerSubject(options_of("http://here/v1"), Setup(checkpoint=f"{name}:mini"))
    asked = Asked(server, [case], unasked, unasked, unasked, tmp_path)
    assert {one.prompt for one in asked.odd.values()} <= {*family.prompts.values()}
