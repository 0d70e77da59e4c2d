"""Output for CI: JUnit properties, GitHub's annotations and the job's summary."""

from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.report import ci
from pytest_dsocr.report.ci import errors
from tests.plugin.conftest import TEST_TEXT, Repository
from tests.report.made import WRONG, payload, result, run_payload

TESTS = f"""{TEST_TEXT}
    def test_boxes(dsocr_report, dsocr_check, record_property):
        record_property("mine", "kept")
        dsocr_check(dsocr_report, "boxes")

    def test_own(dsocr_reading):
        pass

    def test_not_ours():
        pass

    import pytest
    from pytest_dsocr.compare.verdict import Comparison, Verdict

    @pytest.mark.parametrize("page", "abcd")
    def test_alike(page, dsocr_check):
        dsocr_check([Comparison("input_ids", Verdict.WRONG, f"'{{page}}' is other")])
"""


def properties() -> tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]]:
    """Return the properties of the run, and those of each test by name."""
    [suite] = ElementTree.parse("junit.xml").getroot()
    tests = {str(case.get("name")).partition("[")[0]: _under(case) for case in suite.iter("testcase")}
    return _under(suite), tests


def _under(element: ElementTree.Element) -> dict[str, str]:
    found = [(str(one.get("name")), str(one.get("value"))) for one in element.findall("properties/property")]
    assert len({name for name, _ in found}) == len(found), "each once"
    return dict(found)


@pytest.mark.dsocr_slow
def test_tests_and_the_run_have_their_properties(repository: Repository) -> None:
    repository.settle(subject="Misreader", ini="junit_family = xunit1")
    terminal = repository.run(TESTS, "--junit-xml=junit.xml", "-n", "2", apart=True)
    terminal.assert_outcomes(passed=3, failed=5)
    terminal.stdout.fnmatch_lines(["*_ test_alike[[]a] _*", "*also failed     3 more tests*_alike[[]b], [[]c], [[]d]"])
    junit = Path("junit.xml").read_text("utf-8")
    assert (junit.count("<failure"), junit.count("\nrerun  ")) == (5, 5), "of each its own text"
    run, tests = properties()
    assert run.items() >= {
        ("dsocr_ended_as", "wrong"),
        ("dsocr_subject", "standin:Misreader"),
        ("dsocr_key", "mini/cpu-float32-eager"),
        ("dsocr_provenance.vendor_sha256.modeling_deepseekocr.py", "cd" * 32),
    }
    assert "--junit-xml=junit.xml" in run["dsocr_command"]
    assert tests["test_text"].items() >= {
        ("dsocr_ended_as", "wrong"),
        ("dsocr_verdict", "WRONG"),
        ("dsocr_stage", "text"),
        ("dsocr_case", "page-tiny-markdown"),
        ("dsocr_key", "mini/cpu-float32-eager"),
    }
    right = tests["test_boxes"]
    assert (right["dsocr_ended_as"], right["dsocr_verdict"], right["mine"]) == ("passes", "MATCH", "kept")
    assert tests["test_not_ours"] == {}


@pytest.fixture
def on_github(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> Path:
    """Set the variables of a job on GitHub, and return its summary file."""
    summary = pytester.path / "step.md"
    summary.write_text("of a step before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(pytester.path))
    return summary


def shown(run: pytest.RunResult) -> list[str]:
    return [line for line in run.outlines if line.startswith("::")]


def test_a_failed_test_has_an_annotation_and_the_job_a_summary(
    repository: Repository, on_github: Path, snapshot: SnapshotAssertion
) -> None:
    repository.settle("Misreader")
    tests = "\n    def test_own(dsocr_reading): assert not dsocr_reading.text, 'mine'\n" + TEST_TEXT
    assert shown(repository.run(tests, "--dsocr-out=out")) == snapshot
    text = on_github.read_text(encoding="utf-8")
    assert text.startswith("of a step before\n## pytest-dsocr: ")
    assert text.count("## pytest-dsocr") == 1
    assert Path("out/summary.md").read_text(encoding="utf-8") in text


def test_what_could_not_be_compared_is_annotated_as_well(repository: Repository, on_github: Path) -> None:
    test = "import pytest\n@pytest.mark.dsocr_level('L2')\ndef test_steps(dsocr_check): dsocr_check([])"
    [line] = shown(repository.run(test, "--dsocr-no-skip"))
    assert "skipped, and --dsocr-no-skip is set: needs L2 (stages and cache)" in line
    run = repository.run(TEST_TEXT, "--dsocr-out=out", "--dsocr-checkpoint=gone/such/weights.bin")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    [line] = shown(run)
    assert line.startswith("::error title=pytest-dsocr%3A infrastructure::--dsocr-checkpoint: 'gone/such/weights.bin'")
    assert "## pytest-dsocr: infrastructure" in on_github.read_text(encoding="utf-8")


def test_a_summary_that_cannot_be_written_is_reported_and_changes_nothing(
    repository: Repository, on_github: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(on_github.parent / "no" / "folder"))
    run = repository.run()
    assert run.ret == pytest.ExitCode.OK
    assert "dsocr: the summary was not appended to" in run.stderr.str()


@pytest.mark.usefixtures("on_github")
def test_annotations_are_few_and_escaped_and_name_the_subject_where_no_file_of_the_checkout_fails() -> None:
    made = result(*[("failed", payload(WRONG))] * 12).document
    assert len([*errors(made)]) == ci.MOST

    def annotated(nodeid: str, why: str, file: str | None = None, subject: str = "engine") -> list[str]:
        test, cause = made.tests[0], made.causes[0]
        test, cause = replace(test, nodeid=nodeid, why=why, file=file), replace(cause, why="", tests=[nodeid])
        return [*errors(replace(made, tests=[test], causes=[cause], run=run_payload(subject=subject)))]

    shown = annotated("a::b,c:d%", "100%\r\n::warning::, no")
    assert shown == ["::error title=wrong%3A b%2Cc%3Ad%25::100%25\\r\\n::warning::, no"]
    Path("port").mkdir()
    Path("port/ocr.py").write_text("import sys\n\nclass Ocrs: pass\nclass Ocr: pass\n", encoding="utf-8")
    for subject, place in (("port.ocr:Ocr", "file=port/ocr.py,line=4,"), ("port.gone:Ocr", ""), ("cli:x y", "")):
        found = annotated("a::b", "no", "/elsewhere/test_a.py", subject)
        assert found == [f"::error {place}title=wrong%3A b::no"]
