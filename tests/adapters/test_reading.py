"""Programs that really read pages, compared with recordings of the vendor's code; and a run in which one crashes."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_dsocr.cases.run import ask
from pytest_dsocr.compare.case import judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.opening import Wanted
from pytest_dsocr.reference.recording import RecordedReference
from pytest_dsocr.subjects.loading import close_subject, load_subject
from pytest_dsocr.subjects.protocol import Setup
from tests.plugin.conftest import TEST_TEXT, Repository, repository, unwrapped
from tests.recordings import FOLDER, find_recording

__all__ = ["repository"]
PAGE = "figures_201"


def verdicts(spec: str) -> dict[str, Verdict]:
    recording = find_recording(FOLDER, Wanted(resolve(MINI)).key, resampling())
    [page] = [page for page in shipped("dev-3") if page.stem == PAGE]
    subject = load_subject(spec, Setup())
    found = judge(
        ask(subject, RecordedReference(recording), make_case(page, "markdown", "gundam")), tolerances("float32")
    )
    close_subject(subject)
    return {one.what: one.verdict for one in found.comparisons if one.verdict is not Verdict.NOT_COMPARED}


def test_a_server_is_judged_by_its_text_alone(address: str, tmp_path: Path) -> None:
    """It computes, so that on a busy machine it takes longer than a handshake is given unasked."""
    file = tmp_path / "server.toml"
    file.write_text(f"url = '{address}/session/v1'\ntime_limit = 600\n[body]\npreset = '{{preset}}'\n")
    found = verdicts(f"http:{file}")
    assert found["text"] is Verdict.MATCH
    assert {*found} <= {"text", "spans", "boxes"}


def test_in_a_run_what_is_not_offered_is_reported_and_never_wrong(repository: Repository, address: str) -> None:
    subject = f"--dsocr-subject={address}/plain/v1?presets=gundam"
    result = repository.run(TEST_TEXT, subject, "--dsocr-presets=gundam", "--dsocr-presets=large", "--dsocr-out=out")
    result.assert_outcomes(passed=1, skipped=1)
    assert "offers L0 text; presets: gundam" in unwrapped(result)
    assert "1 test: not offered: the preset large; the subject offers gundam" in unwrapped(result)
    [case, *_] = json.loads((repository.pytester.path / "out" / "dsocr.json").read_text())["cases"]
    assert f"first token     {case['first_token_ms']:.0f} ms in the median of 1 case" in result.stdout.str()
    assert f"the server at {address}/plain/v1: model one; it keeps special tokens; " in unwrapped(result)
