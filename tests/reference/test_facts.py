"""Recorded facts are found by how Pillow resizes, and a damaged file is no fact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.reference.nearest import read_facts
from pytest_dsocr.reference.protocol import NotRecordedError
from suites.contract.facts import Facts
from tests.recordings import FOLDER


def test_the_facts_are_those_of_the_installed_pillow() -> None:
    facts = read_facts(FOLDER, "inputs")
    assert facts["provenance"]["resampling"] == resampling()
    assert (len(facts["prepared"]), len(facts["prompts"]), len(facts["grids"])) == (116, 12, 157)


def test_of_other_pillows_the_nearest_serve(tmp_path: Path) -> None:
    with pytest.raises(NotRecordedError, match=r"holds no inputs-\*\.json"):
        read_facts(tmp_path, "inputs")
    for version in ("1.0", "9.5", "99.0"):
        provenance = {"resampling": "other", "versions": {"pillow": version}}
        (tmp_path / f"inputs-pillow-{version}.json").write_text(json.dumps({"provenance": provenance}))
    assert read_facts(tmp_path, "inputs")["provenance"]["versions"] == {"pillow": "9.5"}


@pytest.mark.parametrize(("what", "error"), [("images_ori", None), ("input_ids", None), ("images_ori", 0.5)])
def test_pixels_of_another_pillow_are_not_held_against_a_subject(what: str, error: float | None) -> None:
    """Other things are, and pixels that differ from those that the vendor's code makes with the installed one."""
    made = {"date": "today", "resampling": "other", "versions": {"pillow": "1.0"}}
    wrong, facts = Comparison(what, Verdict.WRONG, "", error), Facts({"provenance": made})
    if what == "images_ori" and error is None:
        with pytest.raises(NotRecordedError, match=r"pip install 'pillow==1\.0'"):
            facts.with_origin(wrong)
    else:
        assert facts.with_origin(wrong).verdict is Verdict.WRONG
