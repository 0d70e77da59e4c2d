"""Markers: registered, checked, and of one test, one class or one file."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Repository

TOLERANCES = "boxes, coords, text, seam, logits, ties"
LEVELS = "L0 (text), L1 (inputs), L2 (stages and cache), L3 (named modules)"
REGISTERED = (
    "@pytest.mark.dsocr(boxes, coords, text, seam, logits, ties): "
    "compare the subject with the reference; optionally within these tolerances",
    "@pytest.mark.dsocr_level(needed): needs a subject of this level: "
    "L0 text, L1 inputs, L2 stages and cache, L3 named modules",
    "@pytest.mark.dsocr_gpu: needs a GPU",
    "@pytest.mark.dsocr_vendor: needs the vendor's Python files: --dsocr-reference=FOLDER",
    "@pytest.mark.dsocr_perf(slower, stage): measures time or memory; a stage, or each, may be slower by this share: "
    "slower=0.05",
    "@pytest.mark.dsocr_slow: takes longer than a few seconds",
)
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
MISPLACED = """
    import pytest

    @pytest.mark.dsocr(coords=0.01)
    def test_boxes_within(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "boxes")

    def test_boxes(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "boxes")
"""


def test_they_are_registered_with_what_they_take(alone: pytest.Pytester) -> None:
    told = alone.runpytest_inprocess("--markers").outlines
    assert [line for line in told if line in REGISTERED] == [*REGISTERED]


def test_strict_markers_know_them(alone: pytest.Pytester) -> None:
    alone.makepyfile("""
        import pytest

        @pytest.mark.dsocr(boxes=1)
        @pytest.mark.dsocr_level("L0")
        @pytest.mark.dsocr_perf
        @pytest.mark.dsocr_perf(slower=0.05, stage="decode")
        @pytest.mark.dsocr_slow
        def test_it(): pass

        @pytest.mark.dsocr_gpu
        @pytest.mark.dsocr_vendor
        def test_of_no_subject(): pass
    """)
    result = alone.runpytest_inprocess("--strict-markers", "-m", "dsocr_gpu and dsocr_vendor")
    result.assert_outcomes(passed=1, deselected=1)


def test_the_nearest_marker_wins_over_class_file_and_run(repository: Repository) -> None:
    result = repository.run(BESIDE, "--dsocr-tolerances", "boxes=7")
    result.assert_outcomes(passed=5)


def test_a_tolerance_is_of_the_marked_test_alone(repository: Repository) -> None:
    repository.settle("Misplacer")
    result = repository.run(MISPLACED)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_boxes[[]page-tiny-markdown] *"])


TOO_MANY = "(too many positional arguments)"
REFUSED = {
    "dsocr(crops=1)": "the marker dsocr does not fit (got an unexpected keyword argument 'crops'); "
    f"it takes the tolerances {TOLERANCES}",
    "dsocr(1)": f"the marker dsocr does not fit {TOO_MANY}; it takes the tolerances {TOLERANCES}",
    "dsocr(boxes=-1)": "the tolerance boxes=-1 is not a whole number of 0 or more; give one",
    "dsocr(boxes=0.5)": "the tolerance boxes=0.5 is not a whole number of 0 or more; give one",
    "dsocr(boxes=True)": "the tolerance boxes=True is not a whole number of 0 or more; give one",
    "dsocr(coords='2 %')": "the tolerance coords='2 %' is not a number of 0 or more; give one",
    "dsocr(seam=float('inf'))": "the tolerance seam=inf is not a number of 0 or more; give one",
    "dsocr_level('L9')": f"'L9' is not a level; give {LEVELS}",
    "dsocr_level(2)": f"'2' is not a level; give {LEVELS}",
    "dsocr_level()": "the marker dsocr_level does not fit (missing a required argument: 'needed'); it takes (needed)",
    "dsocr_perf(0.05)": f"the marker dsocr_perf does not fit {TOO_MANY}; it takes (slower, stage)",
    "dsocr_perf(stage='decode')": "the marker dsocr_perf names the stage 'decode' and no limit; "
    "give slower=0.05 as well",
    "dsocr_perf(slower=-1)": "'-1' is not a number above 0, such as 0.05, or decode=0.05",
    "dsocr_perf(slower=0.05, stage='decoder')": "there is no stage 'decoder'; there are tokenizer, sam, clip, "
    "projector, vision_fusion, vision, prefill, first_token, decode, decode.early, decode.late, postprocess, page",
    "dsocr_gpu('h200')": f"the marker dsocr_gpu does not fit {TOO_MANY}; it takes no arguments",
    "dsocr_slow(seconds=3)": "the marker dsocr_slow does not fit (got an unexpected keyword argument 'seconds'); "
    "it takes no arguments",
}


@pytest.mark.parametrize("marker", REFUSED)
def test_an_argument_that_does_not_fit_is_refused(alone: pytest.Pytester, marker: str) -> None:
    alone.makepyfile(test_it=f"import pytest\n@pytest.mark.{marker}\ndef test_it(dsocr_config): pass")
    result = alone.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert f"test_it.py::test_it: {REFUSED[marker]}" in result.outlines
    assert "Traceback" not in result.stdout.str()


def test_so_is_one_of_a_parameter(alone: pytest.Pytester) -> None:
    marked = "pytest.param(2, marks=pytest.mark.dsocr_level('L7'))"
    alone.makepyfile(
        test_it=f"import pytest\n@pytest.mark.parametrize('n', [1, {marked}])\ndef test_it(dsocr_config, n): pass"
    )
    result = alone.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert f"test_it.py::test_it[2]: 'L7' is not a level; give {LEVELS}" in result.outlines


def test_names_that_others_use_are_not_taken(alone: pytest.Pytester) -> None:
    alone.makepyfile("""
        import pytest

        @pytest.mark.slow("on CI", seconds=3)
        def test_it(dsocr_config): pass
    """)
    result = alone.runpytest_inprocess("--strict-markers")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["'slow' not found in `markers` configuration option"])


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
