"""Terminal output of a run: header, failures, verdict so far, and summary."""

from pathlib import Path
from textwrap import dedent

import pytest
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.report.file import read_result
from tests.plugin.conftest import TEST_TEXT, TWO, Repository, rendered
from tests.recordings import FILES

THREE_TIMES = """
    import pytest

    reports = []

    @pytest.mark.parametrize("again", range(3))
    def test_text(dsocr_report, dsocr_check, again):
        reports.append(dsocr_report)
        assert dsocr_report is reports[0]
        dsocr_check(dsocr_report, "text")

    @pytest.mark.dsocr(boxes=1)
    def test_with_limits_of_its_own(dsocr_report, dsocr_check):
        assert (reports[0].limits.boxes, dsocr_report.limits.boxes) == (0, 1)
        assert dsocr_report.exchange is reports[0].exchange
        dsocr_check(dsocr_report, "spans")

    def test_own(dsocr_report):
        assert dsocr_report.passes, "my own"

    def test_not_ours():
        assert False
"""


def test_a_run_that_passes(repository: Repository, snapshot: SnapshotAssertion) -> None:
    assert rendered(repository.run(TEST_TEXT, "--dsocr-out", "out")) == snapshot
    out = repository.pytester.path / "out"
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*.*")) == snapshot(name="written")


def test_a_run_that_fails_tells_one_failure_of_each_break(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """Run several tests of one case, which is compared once; a log shows one verdict so far."""
    monkeypatch.setenv("COLUMNS", "200")
    repository.settle("Misreader")
    assert rendered(repository.run(THREE_TIMES, "--color=no", "--dsocr-prompts", "free")) == snapshot


TERMINAL = """
    def pytest_sessionstart(session):
        session.config.pluginmanager.getplugin("terminalreporter").isatty = lambda: True
"""


def test_a_verdict_so_far_is_reported_on_a_terminal_also_where_all_is_right(repository: Repository) -> None:
    conftest = repository.pytester.path / "conftest.py"
    conftest.write_text(conftest.read_text() + dedent(TERMINAL))
    [line] = [line for line in repository.run(TWO).outlines if line.startswith("dsocr: 1 compared so far")]
    assert "0 WRONG" in line


def test_the_verdict_on_all_cases_is_reported_before_the_tests_of_no_case(repository: Repository) -> None:
    """Compare the page with two prompts, then run two tests that take no case, as most suites do."""
    others = "".join(f"\n    def test_other_{number}(): pass\n" for number in range(2))
    lines = repository.run(TEST_TEXT + others, "--dsocr-prompts", "free", "--dsocr-prompts", "markdown").outlines
    [line] = [line for line in lines if line.startswith("dsocr: all ")]
    assert all(told in line for told in ("all 2 cases", " 0 WRONG", " 2 other tests"))


def test_a_project_that_has_the_plugin_and_does_not_use_it_is_shown_nothing(alone: pytest.Pytester) -> None:
    alone.makepyfile(
        "import pytest\ndef test_it(): pass\ndef test_fails(): assert 0\ndef test_later(): pytest.skip('x')"
    )
    result = alone.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "dsocr" not in rendered(result).lower()


def test_the_header_says_what_was_chosen(alone: pytest.Pytester, snapshot: SnapshotAssertion) -> None:
    alone.makepyfile(mine="def unsaid(setup): return None")
    alone.makepyfile("def test_it(dsocr_config): pass")
    vendor = alone.mkdir("vendor")
    for name in FILES:
        vendor.joinpath(name).touch()
    chosen = "--dsocr-subject=mine:unsaid --dsocr-checkpoint=synthetic:tiny --dsocr-dtype=bfloat16 "
    chosen += "--dsocr-attention=sdpa --dsocr-reference=vendor --dsocr-reference-device=nvidia-h200 "
    chosen += "--dsocr-reference-attention=eager --dsocr-pages=all --dsocr-presets=tiny --dsocr-presets=base"
    for name, arguments in {"by default": [], "chosen": chosen.split()}.items():
        result = alone.runpytest_inprocess(*arguments, "--collect-only")
        header = [line for line in rendered(result).splitlines() if line.startswith("dsocr: ")]
        assert header == snapshot(name=name)


def test_what_cannot_be_written_loses_no_comparison(repository: Repository) -> None:
    repository.pytester.path.joinpath("taken").write_text("a file")
    result = repository.run(TEST_TEXT, "--dsocr-out=taken/out")
    assert result.ret == pytest.ExitCode.USAGE_ERROR, "refused before anything is run"
    assert "--dsocr-out: taken/out cannot be made (Not a directory)" in result.stderr.str()
    out = repository.pytester.mkdir("out")
    out.joinpath("pages").write_text("in the way")
    result = repository.run(TEST_TEXT, "--dsocr-out=out")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["noticed         there is no picture of page-tiny-markdown: *cannot be written*"])
    assert read_result(out)["cases"][0]["picture"] is None
    gone = "import pathlib, shutil\n        shutil.rmtree('out')\n        pathlib.Path('out').touch()"
    repository.settle("Misreader")
    result = repository.run(f"{TEST_TEXT}\n    def test_in_the_way():\n        {gone}\n", "--dsocr-out=out")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["verdict         1 of 1 test failed; the result was not written:*"])


def test_reruns_are_named_from_ones_own_folder(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.settle("Misreader")
    monkeypatch.chdir(repository.pytester.mkdir("below"))
    lines = repository.run(TEST_TEXT, "..", "--dsocr-pages=../page.png", "--dsocr-out=out").outlines
    again = "pytest '../test_it.py::test_text[page-tiny-markdown]' --dsocr-pages=../page.png --dsocr-out=out"
    assert [line[16 * line.startswith("rerun") :].strip() for line in lines if "pytest '" in line] == [again]
    assert read_result(Path("out"))["tests"][0]["rerun"] == again


LEVELS = """
    import pytest

    @pytest.mark.dsocr_level("L2")
    @pytest.mark.parametrize("n", range(30))
    def test_steps(dsocr_check, n):
        dsocr_check([])
"""


def test_what_needs_more_than_text_has_no_letter_and_is_counted_in_one_line(repository: Repository) -> None:
    ended = repository.run(LEVELS + TEST_TEXT, "--dsocr-out=out")
    shown = ended.stdout.str()
    assert (ended.ret, "sss" in shown, "1 passed, 30 not offered" in shown) == (0, False, True)
    assert shown.count("30 tests need more than text: 30 L2") == 1
    assert read_result(Path("out"))["above"] == {"L2": 30}
