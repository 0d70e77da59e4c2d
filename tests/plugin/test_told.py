"""What a run says in front and at its end, and that it says nothing where nothing is compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pytest_dsocr
from pytest_dsocr.reference.environment import FILES
from pytest_dsocr.reference.goldens import golden_folder
from pytest_dsocr.report.file import read_result
from tests.plugin.conftest import TEST_TEXT, Repository

OURS = f"dsocr: pytest-dsocr {pytest_dsocr.__version__} from {pytest_dsocr.__path__[0]}"
TITLE = " DeepSeek-OCR: subject and reference "
FUNCTIONS = """
    def unsaid(setup):
        return None
"""
NOT_LOOKED_AT = "not looked at with text alone: pixels, stages and cache, and whatever changes no token of these pages"
OF_A_SIDE = ("info.json", "result.mmd", "result_with_boxes.jpg")


def header(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("dsocr: ")]


def summary(result: pytest.RunResult) -> list[str]:
    """The lines from our title to pytest's next one, without that of the time, which is another each time."""
    [start] = (k for k, line in enumerate(result.outlines) if TITLE in line)
    lines = result.outlines[start + 1 :]
    section = lines[: next(k for k, line in enumerate(lines) if line.startswith("==="))]
    return [line for line in section if not line.startswith("time ")]


def test_the_header_says_what_is_compared_with_what_under_which_key(alone: pytest.Pytester) -> None:
    alone.makepyfile("def test_it(dsocr_config): pass")
    assert header(alone.runpytest_inprocess()) == [
        OURS,
        "dsocr: subject session on mini, cpu, float32, eager; offers L0 text, L1 inputs, L2 stages and cache, "
        "L3 named modules",
        f"dsocr: reference recorded, {golden_folder() / 'vendor'}, cpu, float32, eager, or the nearest recording; "
        "pages dev-3, gundam, markdown",
    ]


def test_the_header_says_what_was_chosen(alone: pytest.Pytester) -> None:
    alone.makepyfile(mine=FUNCTIONS)
    alone.makepyfile("def test_it(): pass")
    vendor = alone.mkdir("vendor")
    for name in FILES:
        vendor.joinpath(name).touch()
    chosen = "--dsocr-subject=mine:unsaid --dsocr-checkpoint=synthetic:tiny --dsocr-dtype=bfloat16 "
    chosen += "--dsocr-attention=sdpa --dsocr-reference=vendor --dsocr-reference-device=nvidia-h200 "
    chosen += "--dsocr-reference-attention=eager --dsocr-pages=all --dsocr-presets=tiny --dsocr-presets=base"
    assert header(alone.runpytest_inprocess(*chosen.split())) == [
        OURS,
        "dsocr: subject mine:unsaid on synthetic:tiny, cpu, bfloat16, sdpa; offers what it says when it is loaded",
        "dsocr: reference live, its answers kept from run to run, vendor, nvidia-h200, bfloat16, eager; "
        "pages all, tiny base, markdown",
    ]


def test_a_project_that_has_the_plugin_and_does_not_use_it_is_told_nothing(alone: pytest.Pytester) -> None:
    alone.makepyfile(
        "import pytest\ndef test_it(): pass\ndef test_fails(): assert 0\ndef test_later(): pytest.skip('x')"
    )
    result = alone.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "dsocr" not in result.stdout.str().lower()


def test_a_result_that_was_asked_for_where_nothing_is_compared_is_no_pass(alone: pytest.Pytester) -> None:
    alone.makepyfile("def test_it(): pass")
    result = alone.runpytest_inprocess("--dsocr-out=out")
    assert result.ret == pytest.ExitCode.OK, "the tests are none of ours"
    assert summary(result)[-1] == "verdict         no comparison was made"
    assert read_result(alone.path / "out")["passes"] is False


@pytest.mark.parametrize("quiet", [(), ("-q",), ("-qq",)])
def test_the_summary_stands_between_failures_and_pytests_last_line(
    repository: Repository, quiet: tuple[str, ...]
) -> None:
    repository.settle("Misreader")
    result = repository.run(TEST_TEXT, *quiet)
    lines = result.outlines
    [failures] = (k for k, line in enumerate(lines) if " FAILURES " in line)
    [title] = (k for k, line in enumerate(lines) if TITLE in line)
    assert failures < title
    assert bool(header(result)) is not bool(quiet)
    assert summary(result)[2] == "1 comparison in 1 case: 1 WRONG"


def test_a_run_that_passes_ends_with_what_it_compared_and_its_verdict(repository: Repository) -> None:
    result = repository.run(TEST_TEXT, "--dsocr-out", "out")
    assert summary(result) == [
        "subject         standin:Reader, L0, mini/cpu-float32-eager",
        "reference       live, mini/cpu-float32-eager, vendor's file cdcdcdcdcdcd (Reference)",
        "1 comparison in 1 case: 1 MATCH",
        NOT_LOOKED_AT,
        "written         out/dsocr.json, out/index.html, out/summary.md",
        "verdict         passes",
    ]
    out = repository.pytester.path / "out"
    assert {path.relative_to(out).as_posix() for path in out.rglob("*.*")} == {
        "dsocr.json",
        "index.html",
        "pages/page-tiny-markdown.jpg",
        *(f"pages/page-tiny-markdown/{side}/{name}" for side in ("reference", "subject") for name in OF_A_SIDE),
        "summary.md",
    }


def test_workers_leave_the_marks_of_a_run_alone(repository: Repository) -> None:
    seen = "\n    import shutil\n    shutil.copy('out/dsocr.json', 'seen')\n"
    repository.run(TEST_TEXT + seen, "--dsocr-out=out", "-n", "1", apart=True).assert_outcomes(passed=1)
    assert json.loads(Path("seen").read_text())["id"] == read_result(Path("out"))["id"]


def test_a_run_that_fails_ends_with_the_command_that_runs_the_first_failure_again(repository: Repository) -> None:
    repository.settle("Misreader")
    result = repository.run(TEST_TEXT, "--dsocr-prompts", "free")
    assert summary(result)[2:] == [
        "1 comparison in 1 case: 1 WRONG",
        "WRONG           page-tiny-free: text, the first that was compared; boxes: 1 (reference: 1)",
        NOT_LOOKED_AT,
        "verdict         1 of 1 test failed",
        "next            to run the first failing test again:",
        "    pytest 'test_it.py::test_text[page-tiny-free]' --dsocr-prompts=free",
    ]


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (("--dsocr-out", "other/out"), True),
        (("--dsocr-out=other/out",), False),
        (("--dsocr-out", "other/out", "--rootdir=."), False),
        (("--dsocr-out", "here"), False),
    ],
)
def test_a_path_apart_from_its_flag_that_pytest_took_for_a_test_is_told(
    repository: Repository, typed: tuple[str, ...], told: bool
) -> None:
    """pytest looks for its rootdir before it knows a plugin's flags."""
    home = repository.pytester.mkdir("home")
    for folder in ("home/here", "other/out"):
        (repository.pytester.path / folder).mkdir(parents=True)
    repository.pytester.path.joinpath("tox.ini").rename(repository.pytester.path / "other" / "pytest.ini")
    test = home.joinpath("test_mine.py")
    test.write_text("def test_it(): pass")
    typed = tuple(word.replace("other", str(repository.pytester.path / "other")) for word in typed)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        result = repository.pytester.runpytest_subprocess(*typed)
    told_of = [line for line in (*result.outlines, *result.errlines) if "for its rootdir" in line]
    assert [line.rpartition("; ")[2] for line in told_of] == [f"type --dsocr-out={typed[-1]}"] * told


def test_collecting_compares_nothing_and_promises_nothing(repository: Repository) -> None:
    result = repository.run(TEST_TEXT, "--collect-only", "-q")
    assert result.ret == pytest.ExitCode.OK
    assert result.outlines[0] == "test_it.py::test_text[page-tiny-markdown]"
    assert TITLE not in result.stdout.str()


def test_a_picture_that_cannot_be_made_is_noticed_and_loses_no_comparison(repository: Repository) -> None:
    out = repository.pytester.mkdir("out")
    out.joinpath("pages").write_text("in the way")
    result = repository.run(TEST_TEXT, "--dsocr-out=out")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["noticed         there is no picture of page-tiny-markdown: *cannot be written*"])
    assert read_result(out)["cases"][0]["picture"] is None


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_run(repository: Repository) -> None:
    repository.pytester.path.joinpath("taken").write_text("a file")
    result = repository.run(TEST_TEXT, "--dsocr-out=taken/out")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--dsocr-out: taken/out cannot be made (Not a directory); give another folder" in result.stderr.str()
    assert "passed" not in result.stdout.str()


def test_a_result_that_can_no_longer_be_written_loses_nothing_of_the_terminal(repository: Repository) -> None:
    repository.settle("Misreader")
    tests = f"""{TEST_TEXT}
    def test_in_the_way():
        import pathlib, shutil
        shutil.rmtree("out")
        pathlib.Path("out").touch()
    """
    result = repository.run(tests, "--dsocr-out=out", "--dsocr-prompts=free", apart=True)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "text: edit distance 2, *",
            "WRONG           text of page-tiny-free",
            "verdict         1 of 1 test failed; the result was not written: *",
        ]
    )
