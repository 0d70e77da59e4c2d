"""What GitHub's CI is told: an annotation for each failed test, and the job's summary; elsewhere nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_dsocr.report import ci
from pytest_dsocr.report.ci import append_summary, errors
from tests.plugin.conftest import TEST_TEXT, Repository
from tests.report.made import WRONG, payload, result


@pytest.fixture
def on_github(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> Path:
    """As in a job there; gives the file of its summary."""
    summary = pytester.path / "step.md"
    summary.write_text("of a step before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(pytester.path))
    return summary


@pytest.mark.usefixtures("on_github")
@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["alone", "two workers"])
def test_each_failed_test_has_an_annotation(repository: Repository, arguments: tuple[str, ...]) -> None:
    repository.settle("Misreader")
    run = repository.run("\n    def test_right(): pass\n" + TEST_TEXT, *arguments, apart=bool(arguments))
    [told] = [line for line in run.outlines if line.startswith("::")]
    assert told.startswith(
        "::error file=test_it.py,line=3,title=wrong%3A test_text[page-tiny-markdown]::"
        "text: edit distance 2, 3.51%25 (allowed 0.00%25), from character 54 of 57 on; "
        "first broke text in 1 of 1 page: check whatever comes in front of the text"
    )


def test_the_jobs_summary_is_added_to_once(repository: Repository, on_github: Path) -> None:
    repository.run()
    told = on_github.read_text(encoding="utf-8")
    assert told.startswith("of a step before\n## DeepSeek-OCR: passes\n")
    assert told.count("## DeepSeek-OCR") == 1
    assert not Path("dsocr-out").exists()


def test_the_summary_lies_beside_the_result(repository: Repository, on_github: Path) -> None:
    repository.run(TEST_TEXT, "--dsocr-out=out")
    assert Path("out/summary.md").read_text(encoding="utf-8") in on_github.read_text(encoding="utf-8")


def test_a_skip_that_fails_says_what_was_missing(repository: Repository, on_github: Path) -> None:
    test = "import pytest\n@pytest.mark.dsocr_level('L2')\ndef test_steps(dsocr_check): dsocr_check([])"
    [told] = [line for line in repository.run(test, "--dsocr-no-skip").outlines if line.startswith("::error")]
    assert "skipped, and --dsocr-no-skip is set: needs L2 (stages and cache)" in told


def test_a_refused_run_is_told_as_well(repository: Repository, on_github: Path) -> None:
    run = repository.run(TEST_TEXT, "--dsocr-out=out", "--dsocr-checkpoint=gone/such/weights.bin")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    [told] = [line for line in run.outlines if line.startswith("::")]
    assert told.startswith("::error title=DeepSeek-OCR%3A infrastructure::--dsocr-checkpoint: 'gone/such/weights.bin'")
    assert "## DeepSeek-OCR: infrastructure" in on_github.read_text(encoding="utf-8")


def test_elsewhere_nothing_is_told(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    repository.settle("Misreader")
    assert "::error" not in repository.run().stdout.str()


def test_a_summary_that_cannot_be_written_is_told_and_changes_nothing(
    repository: Repository, on_github: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(on_github.parent / "no" / "folder"))
    run = repository.run()
    assert run.ret == pytest.ExitCode.OK
    assert "dsocr: the summary was not appended to" in run.stderr.str()


@pytest.mark.usefixtures("on_github")
def test_the_annotations_are_few_and_escaped() -> None:
    made = result(*[("failed", payload(WRONG))] * 12)
    assert len([*errors(made.to_json())]) == ci.MOST
    told = {"ended_as": "wrong", "nodeid": "a::b,c:d%", "file": None, "line": None, "why": "100%\r\n::warning::, no"}
    assert [*errors({"tests": [told]})] == ["::error title=wrong%3A b%2Cc%3Ad%25::100%25\\r\\n::warning::, no"]


@pytest.mark.usefixtures("on_github")
def test_a_test_from_outside_of_the_checkout_names_no_file() -> None:
    told = {"ended_as": "wrong", "nodeid": "a::b", "file": "/elsewhere/test_a.py", "line": 3, "why": "no"}
    assert [*errors({"tests": [told]})] == ["::error title=wrong%3A b::no"]
    Path("port").mkdir()
    Path("port/ocr.py").write_text("import sys\n\nclass Ocrs: pass\nclass Ocr: pass\n", encoding="utf-8")
    for subject, place in (("port.ocr:Ocr", "file=port/ocr.py,line=4,"), ("port.gone:Ocr", ""), ("cli:x y", "")):
        found = [*errors({"tests": [told], "run": {"subject": subject}})]
        assert found == [f"::error {place}title=wrong%3A b::no"], "where the subject is, which the suites are not"


def test_without_a_summary_to_append_to_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", " ")
    assert append_summary({}) is None
