"""The suite of servers on a real one: all of it right, and each of thirty mistakes found by the checks that say so."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_dsocr.adapters.server import ServerSubject, options_of
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract.presets import image_token_count
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.case import make_case
from pytest_dsocr.subjects.protocol import Setup
from suites.server.asked import Asked
from suites.server.counts import Counted, compare_counts
from suites.server.test_server import CHECKS, checked
from tests.adapters.mistakes import MISTAKES, SILENT
from tests.faults.trial import reference

SEVERAL = ("drops-the-second", "places-a-mark")
QUICK = (
    "right",
    "counts-one-less",
    "six-crops",
    "page-of-the-host",
    "keeps-the-stop",
    "logprobs-of-heat",
    "says-stop",
    *SEVERAL,
)
"""Mistakes that need one page. The others take 15 minutes on a loaded machine."""
IS_WHOLE = "DSOCR_MISTAKES" in os.environ


def asked_at(url: str, folder: Path, family: ModelSpec = DEEPSEEK_OCR) -> Asked:
    server = ServerSubject(options_of(f"{url}?preset={{preset}}"), Setup())
    cases = [make_case(shipped("dev-3")[0], "markdown", "gundam", family=family)]
    return Asked(server, cases, reference(), resolve("mini").tokenizer, tolerances("float32"), folder)


@pytest.mark.parametrize("name", MISTAKES if IS_WHOLE else QUICK)
def test_what_is_wrong_is_found_and_what_is_right_is_not(name: str, address: str, tmp_path: Path) -> None:
    asked = asked_at(f"{address}/{name}/v1", tmp_path)
    own = MISTAKES[name].found.split()
    made = {check: checked(check, asked).verdict for check in (CHECKS if IS_WHOLE else own or CHECKS)}
    assert {made[check] for check in own} <= {Verdict.WRONG}
    assert own or Verdict.WRONG not in made.values()
    assert name != "right" or Verdict.NOT_COMPARED not in made.values()


@pytest.mark.parametrize(
    ("texts", "check"),
    [
        (("<image>\n\\n<|grounding|>Read.", "<image>\n\\nFree OCR."), "a backslash and an n after the newline"),
        (("<image>\n<|grounding|>Read. Well.", "<image>\nFree OCR. It is so."), "how the server writes the prompt"),
    ],
)
def test_another_text_of_the_prompt_is_told_from_another_count_of_an_image(texts: Sequence[str], check: str) -> None:
    encode, preset = resolve("mini").tokenizer.encode, DEEPSEEK_OCR.preset("gundam")
    prompts = ("<image>\n<|grounding|>Read.", "<image>\nFree OCR.")
    sizes = [sum(len(encode(piece)) for piece in text.split("<image>")) for text in (*prompts, *texts)]
    pages = [
        Counted(
            f"{k}",
            size,
            preset,
            1 + sizes[k],
            2 + sizes[2 + k] + image_token_count(preset, preset.grid(*size)),
            prompts[k],
        )
        for size in ((500, 400), (1400, 900))
        for k in range(2)
    ]
    found = compare_counts(pages, 3, encode)
    assert (found.verdict, check in found.details[0]) == (Verdict.WRONG, True), found


def test_what_reads_nothing_is_not_called_alike(address: str, tmp_path: Path) -> None:
    asked = asked_at(f"{address}/{SILENT}/v1", tmp_path)
    assert {checked(check, asked).verdict for check in ("temperature", "at_once")} == {Verdict.NOT_COMPARED}


@pytest.mark.parametrize("family", MODELS.values(), ids=lambda family: family.name)
def test_odd_pages_are_asked_for_by_a_prompt_that_reads_them(family: ModelSpec, tmp_path: Path) -> None:
    asked = asked_at("http://here/v1", tmp_path, family)
    engine = Engine.from_checkpoint(f"{family.name}:mini", instrument="off")
    pages = [asked.odd[name] for name in ("plain", "blank")]
    texts = {engine.run(one.page, prompt=one.prompt, preset=one.preset, max_new_tokens=9).text for one in pages}
    assert all(texts)
    assert len(texts) == len(pages)
