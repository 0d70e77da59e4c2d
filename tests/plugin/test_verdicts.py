"""Verdict of a run in every view: WRONG pages that no test judged fail it, and it names what it allowed or left out."""

import re
from collections.abc import Mapping, Sequence
from html import unescape
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest

from pytest_dsocr.report.file import read_result
from tests.plugin.conftest import CONFTEST, TEST_TEXT, TWO, Repository

ENDS_BEFORE = """
    import pytest

    def test_it(dsocr_report, dsocr_check):
        {}
        dsocr_check(dsocr_report, "text")
"""
MARKED = """
    import pytest

    @pytest.mark.{}
    def test_it(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "text")
"""
ENDINGS = ('pytest.skip("not today")', 'pytest.xfail("x")', 'pytest.importorskip("no_such_module")')
SKIPS = ('skip("not today")', 'skipif(True, reason="not today")')
KNOWN = ('xfail(run=False, reason="known")', 'xfail(reason="known")')
BUT_THIRD = 'pytest.skip("not today") if dsocr_report.case.page.stem != "third" else None'
TWICE = "@pytest.mark.dsocr(text=0.5)"
TEXT_AND_SEAM = "dsocr_tolerances =\n    text=0.5\n    seam=1e-9\n"
BOXES = TEST_TEXT.replace("text", "boxes")
SPANS = TWO.replace('"text"', '"spans"').replace("test_text", "test_spans")
SLOW = SPANS.replace("def test_boxes", "import pytest\n\n    @pytest.mark.dsocr_slow\n    def test_boxes")
SKIPPING = """
    def pytest_runtest_call(item):
        item._request.getfixturevalue("dsocr_report")
        pytest.skip("busy")
"""
DROPPING = """
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(items):
        yield
        items[:] = items[:1]
"""
REFUSING = """
    import standin
    from pytest_dsocr.subjects.protocol import NotOfferedError

    class Reader(standin.Reader):
        presets = ("tiny",)

        def read(self, page, **how):
            if page.stem in ("page", "third"):
                raise NotOfferedError("not offered: this page")
            return self.text
"""
BY_ITSELF = """
    import pytest
    from pytest_dsocr.compare.verdict import Comparison, Verdict

    {}
    def test_twice(dsocr_subject, dsocr_check):
        dsocr_check([Comparison("text", Verdict.DRIFT, "made up")])
"""
OF_ANOTHER_DTYPE = """
    from dataclasses import replace
    from pytest_dsocr.compare.tolerances import tolerances

    def test_in_bfloat16(dsocr_case, dsocr_subject, dsocr_check, request):
        report = request.getfixturevalue("dsocr_report")
        dsocr_check(replace(report, limits=tolerances("bfloat16")))
"""
"""A test without the run's reference, such as that of the second checkpoint, has limits of its own dtype."""


MORE = ("second", "third")


class Row(NamedTuple):
    """A run that passes or has a budget, and what its result says."""

    verdict: str
    """Beginning of its verdict."""
    tests: str = TEST_TEXT
    arguments: Sequence[str] = ()
    how: Mapping[str, Any] = {}
    """Keyword arguments of ``ended``."""
    looser: Sequence[object] = ()
    """Name of a wider limit, the limit, and its origin."""
    left: Sequence[object] = (0,)
    """Number of deselected tests, and the options that deselected them."""


def ended(
    repository: Repository,
    tests: str,
    *arguments: str,
    subject: str = "standin:Misreader",
    ini: str = "",
    conftest: str = "",
    pages: Sequence[str] = (),
) -> tuple[int, dict[str, Any]]:
    """Run tests of the page and of copies of it. Return the status and the result; its verdict is in every view."""
    repository.settle(ini=ini)
    repository.pytester.makeconftest(dedent(CONFTEST.format(reference="Reference")) + dedent(conftest))
    repository.pytester.makepyfile(refusing=REFUSING)
    options = (*repository.pages(*pages), f"--dsocr-subject={subject}", "--dsocr-out=out", *arguments)
    run = repository.run(tests, *options, apart="-n" in arguments)
    found = read_result(Path("out"))
    views = (run.stdout.str(), *(Path("out", name).read_text("utf-8") for name in ("index.html", "summary.md")))
    assert all(found["verdict"] in " ".join(unescape(view).replace("\\", "").split()) for view in views)
    return int(run.ret), found


@pytest.mark.parametrize(
    ("tests", "conftest", "is_excused"),
    [
        *((ENDS_BEFORE.replace("{}", ending), "", False) for ending in ENDINGS),
        *((ENDS_BEFORE.replace("{}", ending) + BOXES, "", False) for ending in ENDINGS),
        *((MARKED.replace("{}", skip) + BOXES, "", False) for skip in SKIPS),
        *((MARKED.replace("{}", known) + BOXES, "", True) for known in KNOWN),
        (TEST_TEXT, SKIPPING, False),
    ],
)
def test_a_wrong_page_that_no_test_judged_fails_the_run_unless_it_is_a_known_failure(
    repository: Repository, tests: str, conftest: str, is_excused: bool
) -> None:
    status, found = ended(repository, tests, conftest=conftest)
    assert (status, found["ended_as"]) == ((0, "passes") if is_excused else (1, "wrong"))
    assert (found["passes"], found["cases"][0]["unjudged"]) == (is_excused, [] if is_excused else ["text"])


OUT_OF_MEMORY = """
    def test_no_memory(dsocr_config):
        import torch

        raise torch.OutOfMemoryError("CUDA out of memory")
"""


@pytest.mark.parametrize(("subject", "as_what"), [("Reader", "infrastructure"), ("Misreader", "wrong")])
def test_a_test_without_memory_is_no_finding_about_the_subject(
    repository: Repository, subject: str, as_what: str
) -> None:
    """Raise torch's own error in a test, where no call of the subject turns it into one of ours."""
    assert ended(repository, TEST_TEXT + OUT_OF_MEMORY, subject=f"standin:{subject}")[1]["ended_as"] == as_what


ALL: Mapping[str, Any] = {"subject": "standin:Reader", "pages": MORE}
LAST = "test_it.py::test_boxes[third-tiny-markdown]"
REFUSES, DROPS = {**ALL, "subject": "refusing:Reader"}, {**ALL, "conftest": DROPPING}
BOTH_PRESETS = ("--dsocr-presets=tiny", "--dsocr-presets=base")
OF_THREE = "passes, 2 of 3 pages ({}) not compared"
ONE_READ, FIRST_READ = OF_THREE.format("page.png, third.png"), OF_THREE.format("second.png, third.png")
PRESET = ", 1 of 2 presets (base) not compared, not offered: preset base"
TEXT, HALF = ("text", 0.5, "DSOCR_TOLERANCES"), ("text", 0.5, "dsocr_tolerances in tox.ini")
WITHIN, INT4 = "passes within looser limits: text=0.5 (0)", "passes within the int4 budget by DSOCR_QUANTIZATION_BUDGET"
FP8 = "passes within the fp8 budget by dsocr_quantization_budget in tox.ini: boxes 0 of 0.06"
ROWS = {
    "right pages skipped": Row(OF_THREE.format("page.png, second.png"), ENDS_BEFORE.replace("{}", BUT_THIRD), (), ALL),
    "pages and presets not offered": Row(ONE_READ + PRESET, TEST_TEXT, BOTH_PRESETS, REFUSES),
    "DSOCR_SHARD=1/3": Row("passes, shard 1 of 3 by DSOCR_SHARD", TEST_TEXT, (), ALL),
    "-k on a worker": Row(FIRST_READ, SPANS, ("-n", "1", "-k", "page"), ALL, left=(4, "-k page")),
    "dropped by a conftest": Row(FIRST_READ, SPANS, (), DROPS, left=(5,)),
    "--deselect": Row("passes, 1 of 6", SPANS, ("--deselect", LAST), ALL, left=(1, f"--deselect ['{LAST}']")),
    "-m": Row("passes, 3 of 6", SLOW, ("-m", "not dsocr_slow"), ALL, left=(3, "-m not dsocr_slow")),
    "a tolerance in the ini file": Row(f"{WITHIN} by {HALF[2]}", how={"ini": TEXT_AND_SEAM}, looser=HALF),
    "DSOCR_TOLERANCES=text=0.5": Row(f"{WITHIN} by {TEXT[2]}", looser=TEXT),
    "DSOCR_TOLERANCES=text=0.5 of a subject compared with itself": Row(WITHIN, BY_ITSELF.format(""), looser=TEXT),
    "a marker": Row(WITHIN, MARKED.replace("{}", "dsocr(text=0.5)"), looser=("text", 0.5, "")),
    "a marker of a subject compared with itself": Row(WITHIN, BY_ITSELF.format(TWICE), looser=("text", 0.5, "")),
    "limits of a report's own dtype": Row("passes", OF_ANOTHER_DTYPE, how={"subject": "standin:Reader"}),
    "DSOCR_QUANTIZATION_BUDGET=int4": Row(f"{INT4}: boxes 0 of 0.06, characters"),
    "a budget in the ini file": Row(FP8, how={"ini": "dsocr_quantization_budget = fp8\n"}),
    "DSOCR_QUANTIZATION_BUDGET=boxes=0.06": Row("1 of 1 test failed"),
}
"""Runs by what is allowed or left out in them; one that starts with ``DSOCR_`` has that variable set."""


@pytest.mark.parametrize("name", ROWS)
def test_a_verdict_names_what_was_allowed_and_what_was_left_out(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    row = ROWS[name]
    if name.startswith("DSOCR_"):
        variable, _, value = name.partition(" ")[0].partition("=")
        monkeypatch.setenv(variable, value)
    status, found = ended(repository, row.tests, *row.arguments, **row.how)
    assert found["verdict"].startswith(row.verdict)
    assert (status, found["passes"]) == ((0, True) if row.verdict.startswith("passes") else (1, False))
    assert [(name, one["allowed"], one["by"]) for name, one in found["looser"].items()] == [row.looser] * bool(
        row.looser
    )
    left = found["left"]
    assert (left["tests"], len(left["names"]), *left["by"]) == (row.left[0], *row.left)
    not_compared = [page.removesuffix(".png") for page in re.findall(r"\w+\.png", row.verdict)]
    assert [case.partition("-")[0] for case in left["not_compared"] if "-tiny-" in case] == not_compared
