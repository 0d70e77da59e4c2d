"""A run on a device without a recording: the nearest one is used, and every view says so."""

import shutil
from pathlib import Path

import pytest

from pytest_dsocr.contract.image import resampling
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.records.provenance import RecordingKey
from pytest_dsocr.reference.protocol import NoRecordingError
from pytest_dsocr.report.file import read_result
from pytest_dsocr.run.references import reference_of
from suites.contract.pages import write_page
from tests.recordings import FOLDER, find_recording
from tests.report.made import config

TESTS = """
    from pytest_dsocr.compare.verdict import Comparison, Verdict

    def test_it(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report)

    def test_fails(dsocr_report, dsocr_check):
        dsocr_check([Comparison("it", Verdict.WRONG, "")])
"""
CHECKPOINT = "synthetic:small"
CEILING = 2
TOLD = "the nearest recording, as none is of cpu-bfloat16-eager"


@pytest.fixture
def of_h200(tmp_path: Path) -> Path:
    """Return a folder with one recording, of an H200 in bf16."""
    key = RecordingKey("synthetic-small", "nvidia-h200", "bfloat16", "eager", resolve(CHECKPOINT).sha256)
    folder = find_recording(FOLDER, key, resampling()).folder
    shutil.copytree(folder, tmp_path / "recordings" / key.checkpoint / folder.name)
    return tmp_path / "recordings"


@pytest.mark.dsocr_slow
def test_it_serves_within_limits_between_devices_and_says_so(pytester: pytest.Pytester, of_h200: Path) -> None:
    pytester.makepyfile(TESTS)
    page = write_page("portrait", pytester.path)
    sides = (f"--dsocr-checkpoint={CHECKPOINT}", "--dsocr-dtype=bfloat16", f"--dsocr-reference={of_h200}")
    cases = (f"--dsocr-pages={page}", "--dsocr-presets=small", f"--dsocr-max-new-tokens={CEILING}")
    run = pytester.runpytest_inprocess(*sides, *cases, "--dsocr-out=out", "-rA")
    run.assert_outcomes(passed=1, failed=1)
    out = pytester.path / "out"
    result = read_result(out)
    assert result["run"]["nearest"] == TOLD
    [case] = result["cases"]
    assert case["tokens"]["reference"] == CEILING
    verdicts = {one["what"]: one["verdict"] for one in case["comparisons"]}
    assert "WRONG" not in verdicts.values()
    assert verdicts["text"] in ("MATCH", "TIE-FLIP")
    assert any("cut to a lower ceiling" in note for note in result["notes"])
    assert any(f"ended at the limit of {CEILING} tokens" in note for note in result["notes"])
    shown = " ".join(run.stdout.str().split())
    assert shown.count(TOLD) == 2, "in the failure and in the summary"
    for name in ("summary.md", "index.html"):
        assert TOLD in " ".join((out / name).read_text("utf-8").split()), name


@pytest.mark.dsocr_slow
def test_what_was_asked_for_and_is_not_there_is_refused(of_h200: Path) -> None:
    assert reference_of(config(checkpoint=CHECKPOINT, reference=of_h200)).provenance.device == "nvidia-h200"
    for way, asked in {"device": "cpu", "dtype": "float32", "attention": "flash_attention_2"}.items():
        with pytest.raises(NoRecordingError, match=f"leave out --dsocr-reference-{way}, and"):
            reference_of(config(checkpoint=CHECKPOINT, reference=of_h200, **{f"reference_{way}": asked}))
