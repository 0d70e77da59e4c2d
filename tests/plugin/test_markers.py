"""Markers: registration, checks of their arguments, and precedence of test, class and file."""

import re

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.plugin.conftest import Repository

BESIDE = """
    import pytest

    pytestmark = pytest.mark.dsocr(coords=0.5, text=0.25)

    def test_of_the_file(dsocr_limits):
        assert (dsocr_limits.coords, dsocr_limits.text, dsocr_limits.boxes) == (0.5, 0.25, 7)

    @pytest.mark.dsocr(boxes=1)
    def test_one_alone(dsocr_limits):
        assert (dsocr_limits.coords, dsocr_limits.text, dsocr_limits.boxes) == (0.5, 0.25, 1)

    @pytest.mark.dsocr(text=0.125, ties=0)
    class TestClass:
        def test_of_the_class(self, dsocr_limits):
            assert (dsocr_limits.coords, dsocr_limits.text, dsocr_limits.ties) == (0.5, 0.125, 0)

        @pytest.mark.dsocr(text=0)
        def test_nearest(self, dsocr_limits):
            assert (dsocr_limits.coords, dsocr_limits.text, dsocr_limits.ties) == (0.5, 0, 0)

    def test_compares(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "text")
"""


def test_they_are_registered_with_what_they_take(alone: pytest.Pytester, snapshot: SnapshotAssertion) -> None:
    lines = alone.runpytest_inprocess("--markers").outlines
    assert [line for line in lines if line.startswith("@pytest.mark.dsocr")] == snapshot


def test_the_nearest_marker_wins_over_class_file_and_run(repository: Repository) -> None:
    result = repository.run(BESIDE, "--dsocr-tolerances", "boxes=7")
    result.assert_outcomes(passed=5)


REFUSED = (
    "dsocr(crops=1)",
    "dsocr(1)",
    "dsocr(boxes=-1)",
    "dsocr(coords='2 %')",
    "dsocr(seam=float('inf'))",
    "dsocr_level('L9')",
    "dsocr_perf(0.05)",
    "dsocr_perf(stage='decode')",
    "dsocr_perf(max_slowdown=-1)",
    "dsocr_perf(max_slowdown=0.05, stage='decoder')",
    "dsocr_gpu('h200')",
)


def test_an_argument_that_does_not_fit_is_refused(alone: pytest.Pytester, snapshot: SnapshotAssertion) -> None:
    """Collect wrong markers of tests and of a parameter in one run."""
    for n, marker in enumerate(REFUSED):
        alone.makepyfile(**{f"test_{n}": f"import pytest\n@pytest.mark.{marker}\ndef test_it(dsocr_config): pass"})
    parameter = "pytest.param(2, marks=pytest.mark.dsocr_level('L7'))"
    alone.makepyfile(
        test_it=f"import pytest\n@pytest.mark.parametrize('n', [1, {parameter}])\ndef test_it(dsocr_config, n): pass"
    )
    result = alone.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "Traceback" not in result.stdout.str()
    found = dict(line.split(": ", 1) for line in result.outlines if re.match(r"test_\w+\.py::test_it", line))
    assert found.pop("test_it.py::test_it[2]") == snapshot(name="of a parameter")
    assert {marker: found[f"test_{n}.py::test_it"] for n, marker in enumerate(REFUSED)} == snapshot


def test_a_gpu_that_is_not_there_skips_what_needs_it(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    marked = "import pytest\n{0}\ndef test_it(dsocr_report, dsocr_check): dsocr_check(dsocr_report, 'text')"
    result = repository.run(marked.format("@pytest.mark.dsocr_gpu"), "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*needs a GPU that torch can use; run it where there is one"])
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    repository.run(marked.format("@pytest.mark.dsocr_gpu")).assert_outcomes(passed=1)


def test_what_needs_the_vendors_files_says_how_to_name_them(repository: Repository) -> None:
    result = repository.run("import pytest\n@pytest.mark.dsocr_vendor\ndef test_it(dsocr_config): pass", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*needs the vendor's Python files; name their folder: --dsocr-reference=FOLDER"])
