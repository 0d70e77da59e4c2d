"""Correct implementations are not called wrong: what was found is written down, and one run is made on every change."""

from __future__ import annotations

import json

import pytest
import torch

from pytest_dsocr.subjects.protocol import Setup
from tests.clean_runs import seeded
from tests.clean_runs.__main__ import FOUND, PAGE, busy, made_of
from tests.clean_runs.runs import RUNS, CleanRun
from tests.clean_runs.table import Found, table

KNOWN = [Found(**one) for one in json.loads(FOUND.read_text(encoding="utf-8"))]


def test_no_clean_run_failed() -> None:
    assert [one.name for one in KNOWN] == [run.name for run in RUNS]
    assert all(one.passes and not one.failed for one in KNOWN)
    assert sum(one.cases for one in KNOWN) >= 100


def test_the_page_of_the_documentation_is_what_was_found() -> None:
    assert PAGE.read_text(encoding="utf-8") == table(KNOWN)


def test_a_run_is_told_by_its_own_file_and_a_wrong_one_is_not_clean() -> None:
    page = "--dsocr-pages=pytest_dsocr/pages/files/generated/figures_201.png"
    right = made_of(CleanRun("one page", "", (page, "--dsocr-presets=gundam")), None, None)
    assert (right.passes, right.cases, right.failed) == (True, 1, [])
    assert 0 < right.worst_error < 1e-5
    planted = (page, "--dsocr-subject=tests.faults.subject:PRJ_W1")
    wrong = made_of(CleanRun("a mistake", "", planted), None, None)
    assert (wrong.passes, wrong.failed) == (False, ["figures_201-gundam-markdown"])


def test_what_keeps_the_machine_busy_ends_with_the_run() -> None:
    with busy(2) as started:
        assert [one.poll() for one in started] == [None, None]
    assert all(one.returncode is not None for one in started)


def test_a_session_is_loaded_behind_seeded_generators() -> None:
    subject = seeded.seed_41(Setup())
    assert (torch.initial_seed(), subject.dtype) == (41, "float32")
    with pytest.raises(AttributeError):
        _ = seeded.grain_41
