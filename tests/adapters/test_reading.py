"""A run against a server: what it offers and what it says are reported."""

import json

from tests.plugin.conftest import TEST_TEXT, Repository, repository, unwrapped

__all__ = ["repository"]


def test_in_a_run_what_is_not_offered_is_reported_and_never_wrong(repository: Repository, address: str) -> None:
    subject = f"--dsocr-subject={address}/plain/v1?presets=gundam"
    result = repository.run(TEST_TEXT, subject, "--dsocr-presets=gundam", "--dsocr-presets=large", "--dsocr-out=out")
    result.assert_outcomes(passed=1, skipped=1)
    assert "offers L0 text; presets: gundam" in unwrapped(result)
    assert "1 test: not offered: the preset large; the subject offers gundam" in unwrapped(result)
    [case, *_] = json.loads((repository.pytester.path / "out" / "dsocr.json").read_text())["cases"]
    assert f"first token     {case['first_token_ms']:.0f} ms in the median of 1 case" in result.stdout.str()
    assert f"the server at {address}/plain/v1: model one; it keeps special tokens; " in unwrapped(result)
