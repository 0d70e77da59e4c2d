"""Every variant that runs on a CPU passes in float32 against the recordings, with its named modules watched."""

from pathlib import Path

import pytest

from pytest_dsocr.compare.case import judge
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.case import make_case
from pytest_dsocr.run.limits import limits_between
from pytest_dsocr.run.sides import ask
from pytest_dsocr.subjects.loading import load_subject
from tests.faults.trial import SETUP, key, reference
from tests.variants.__main__ import main
from tests.variants.table import VARIANTS, why_not

WITH_CROPS = "invoice_016"
APART = ("reversed", "compiled")
"""Variants of a whole run: of several pages, or with torch's compiler, which leaves threads and modules behind."""


@pytest.mark.dsocr_slow
@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in APART])
def test_it_passes_at_every_level(name: str) -> None:
    listed = VARIANTS[name]
    if why := why_not(listed, SETUP.device):
        pytest.skip(why)
    subject = load_subject(listed.subject, SETUP)
    [page] = [page for page in shipped("dev-3") if page.stem == WITH_CROPS]
    family = resolve(SETUP.checkpoint).architecture.family
    case = make_case(page, "markdown", "gundam", None, family=family)
    asked = ask(subject, reference(), case, always_read=True, tokenizer=resolve(SETUP.checkpoint).tokenizer)
    report = judge(asked, limits_between(subject, reference(), key()))
    assert [f"{one.what}: {one.measured}" for one in report.comparisons if not one.passes] == []
    assert not [one for one in report.comparisons if one.verdict is Verdict.NOT_COMPARED]
    assert report.passes


@pytest.mark.dsocr_slow
@pytest.mark.parametrize("name", APART)
def test_it_passes_in_a_run(name: str, tmp_path: Path) -> None:
    if why := why_not(VARIANTS[name], SETUP.device):
        pytest.skip(why)
    tests = "--option=--tests=suites/parity/test_case.py"
    assert main([f"--only={name}", "--jobs=1", tests, f"--out={tmp_path}"]) == 0
