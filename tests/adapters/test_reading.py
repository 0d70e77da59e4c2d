"""Programs that really read pages, compared with recordings of the vendor's code; and a run in which one crashes."""

import json
from pathlib import Path

from pytest_dsocr.compare.verdict import Verdict
from tests.held import held
from tests.plugin.conftest import TEST_TEXT, Repository, repository, unwrapped
from tests.subjects.test_examples import verdicts_of

__all__ = ["repository"]


def test_a_server_is_judged_by_its_text_alone(address: str, tmp_path: Path) -> None:
    """It computes, so that on a busy machine it takes longer than a handshake is given unasked."""
    file = tmp_path / "server.toml"
    file.write_text(f"url = '{address}/right/v1'\ntime_limit = 600\n[body]\npreset = '{{preset}}'\n")
    found = verdicts_of(held(f"http:{file}", "figures_201"))
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
