"""Pages that are WRONG without a failed test, which fail the run, and pages that were not compared."""

from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.report.file import read_result
from tests.plugin.conftest import TEST_TEXT, Repository

BEFORE = """
    import pytest

    def test_it(dsocr_report, dsocr_check):
        {}
        dsocr_check(dsocr_report, "text")
"""
BOXES_TOO = f"{BEFORE}\n    {TEST_TEXT.replace('text', 'boxes').strip()}\n"
MARKED = """
    import pytest

    @pytest.mark.{}
    def test_it(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "text")
""" + TEST_TEXT.replace("text", "boxes")
SKIPPING = """
    def pytest_runtest_call(item):
        item._request.getfixturevalue("dsocr_report")
        pytest.skip("busy")
"""
READER = """
    import standin
    from pytest_dsocr.subjects.protocol import NotOfferedError

    class Reader(standin.Reader):
        presets = {presets}

        def read(self, page, **how):
            if page.stem in {refused}:
                raise NotOfferedError("not offered: this page")
            return self.text
"""


def run(repository: Repository, tests: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    ended = repository.run(tests, "--dsocr-out=out", *arguments)
    return int(ended.ret), read_result(Path("out"))


@pytest.mark.parametrize("tests", [BEFORE, BOXES_TOO], ids=["alone", "beside one that judges boxes"])
@pytest.mark.parametrize(
    "ending", ['pytest.skip("not today")', 'pytest.xfail("x")', 'pytest.importorskip("no_such_module")']
)
def test_a_wrong_page_whose_test_ended_before_it_judged_fails_the_run(
    repository: Repository, tests: str, ending: str
) -> None:
    repository.settle("Misreader")
    status, found = run(repository, tests.replace("{}", ending))
    assert (status, found["passes"], found["ended_as"]) == (1, False, "wrong")
    assert "text" in found["cases"][0]["unjudged"]


@pytest.mark.parametrize(
    ("marker", "status", "unjudged"),
    [
        ('skip("not today")', 1, ["text"]),
        ('skipif(True, reason="not today")', 1, ["text"]),
        ('xfail(run=False, reason="known")', 0, []),
        ('xfail(reason="known")', 0, []),
    ],
)
def test_of_markers_a_known_failure_alone_excuses_a_wrong_page(
    repository: Repository, marker: str, status: int, unjudged: list[str]
) -> None:
    repository.settle("Misreader")
    ended, found = run(repository, MARKED.replace("{}", marker))
    assert (ended, found["passes"], found["cases"][0]["unjudged"]) == (status, not status, unjudged)


def test_so_does_one_that_a_conftest_skipped(repository: Repository) -> None:
    repository.settle("Misreader")
    with repository.pytester.path.joinpath("conftest.py").open("a", encoding="utf-8") as conftest:
        conftest.write("\n".join(line[4:] for line in SKIPPING.splitlines()))
    status, found = run(repository, TEST_TEXT)
    assert (status, found["passes"], found["cases"][0]["unjudged"]) == (1, False, ["text"])


def test_a_right_page_may_be_skipped_and_is_named(repository: Repository) -> None:
    skips = 'pytest.skip("not today") if dsocr_report.case.page.stem != "third" else None'
    status, found = run(repository, BEFORE.replace("{}", skips), *repository.pages("second", "third"))
    assert (status, found["verdict"]) == (0, "passes, 2 of 3 pages (page.png, second.png) not compared")
    assert found["left"]["not_compared"] == ["page-tiny-markdown", "second-tiny-markdown"]


def test_pages_and_presets_that_are_not_offered_are_named(repository: Repository) -> None:
    repository.pytester.makepyfile(refusing=READER.format(presets=("tiny",), refused=("page", "third")))
    how = ("--dsocr-subject=refusing:Reader", "--dsocr-presets=tiny", "--dsocr-presets=base")
    status, found = run(repository, TEST_TEXT, *repository.pages("second", "third"), *how)
    named = (
        "2 of 3 pages (page.png, third.png) not compared, 1 of 2 presets (base) not compared, not offered: preset base"
    )
    assert (status, found["verdict"]) == (0, f"passes, {named}")
    assert named in Path("out/summary.md").read_text(encoding="utf-8").replace("\\", "")


def test_a_shard_of_the_environment_is_named(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSOCR_SHARD", "1/3")
    status, found = run(repository, TEST_TEXT, *repository.pages("second", "third"))
    assert (status, found["verdict"]) == (0, "passes, shard 1 of 3 by DSOCR_SHARD")


@pytest.mark.parametrize(
    ("ini", "variables", "verdict"),
    [
        (
            "",
            {"DSOCR_QUANTIZATION_BUDGET": "int4"},
            "passes within the int4 budget by DSOCR_QUANTIZATION_BUDGET: boxes 0 of 0.06, characters",
        ),
        (
            "dsocr_quantization_budget = fp8\n",
            {},
            "passes within the fp8 budget by dsocr_quantization_budget in tox.ini: boxes 0 of 0.06",
        ),
        ("", {"DSOCR_TOLERANCES": "text=0.5"}, "passes within looser limits: text=0.5 (0) by DSOCR_TOLERANCES"),
        ("", {"DSOCR_QUANTIZATION_BUDGET": "boxes=0.06"}, "1 of 1 test failed"),
    ],
    ids=["budget", "budget in the ini file", "tolerance", "boxes alone"],
)
def test_whoever_allows_more_is_named(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, ini: str, variables: dict[str, str], verdict: str
) -> None:
    repository.settle("Misreader", ini=ini)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    _, found = run(repository, TEST_TEXT)
    assert found["verdict"].startswith(verdict)


BY_ITSELF = """
    import pytest
    from pytest_dsocr.compare.verdict import Comparison, Verdict

    {marker}
    def test_twice(dsocr_subject, dsocr_check):
        dsocr_check([Comparison("text", Verdict.DRIFT, "made up")])
"""


@pytest.mark.parametrize(
    ("variables", "marker", "looser"),
    [
        ({"DSOCR_TOLERANCES": "text=0.5"}, "", ["text", 0.5, "DSOCR_TOLERANCES"]),
        ({}, "@pytest.mark.dsocr(text=0.25)", ["text", 0.25, ""]),
    ],
)
def test_looser_limits_of_a_subject_compared_with_itself_are_named(
    repository: Repository,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    marker: str,
    looser: list[object],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    status, found = run(repository, BY_ITSELF.format(marker=marker))
    assert status == 0
    assert [[name, one["allowed"], one["by"]] for name, one in found["looser"].items()] == [looser]


OF_ANOTHER_DTYPE = """
    from dataclasses import replace
    from pytest_dsocr.compare.tolerances import tolerances

    def test_in_bfloat16(dsocr_case, dsocr_subject, dsocr_check, request):
        report = request.getfixturevalue("dsocr_report")
        dsocr_check(replace(report, limits=tolerances("bfloat16")))
"""


def test_a_report_with_limits_of_its_own_is_not_held_to_the_subjects_dtype(repository: Repository) -> None:
    """A test without the run's reference, such as that of the second checkpoint, has limits of its own dtype."""
    status, found = run(repository, OF_ANOTHER_DTYPE)
    assert (status, found["looser"], found["verdict"]) == (0, {}, "passes")
