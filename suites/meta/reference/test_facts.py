"""Recorded facts are found by how Pillow resizes, and a damaged file is no fact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_dsocr.contract.resampling import resampling
from pytest_dsocr.reference.protocol import NotRecordedError, ReferenceFaultError
from pytest_dsocr.reference.recorded.facts import read_facts
from suites.meta.recordings import FOLDER


def test_the_facts_are_those_of_the_installed_pillow() -> None:
    facts = read_facts(FOLDER, "inputs")
    assert facts["provenance"]["resampling"] == resampling()
    assert (len(facts["prepared"]), len(facts["prompts"]), len(facts["grids"])) == (116, 12, 157)


def test_facts_of_another_pillow_alone_are_none(tmp_path: Path) -> None:
    provenance = {"resampling": "other", "versions": {"pillow": "1.0"}}
    (tmp_path / "inputs-pillow-1.json").write_text(json.dumps({"provenance": provenance}))
    with pytest.raises(NotRecordedError, match=r"only inputs-pillow-1\.json; pip install 'pillow==1\.0'"):
        read_facts(tmp_path, "inputs")
    with pytest.raises(NotRecordedError, match="no such file"):
        read_facts(tmp_path, "outputs")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"provenance": []}', '{"provenance": {"date": ""}}'])
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "inputs-pillow-1.json").write_text(text)
    with pytest.raises(ReferenceFaultError, match=r"inputs-pillow-1\.json (is damaged|has a wrong|does not fit)"):
        read_facts(tmp_path, "inputs")
