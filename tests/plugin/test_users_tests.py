"""Fixtures in a user's own repository, with the user's tests, cases and subjects."""

from collections import Counter
from textwrap import dedent

import pytest

from pytest_dsocr.pages.page_list import shipped
from tests.plugin.conftest import TEST_TEXT, Repository

CONFTEST = """
    from pathlib import Path

    import pytest
    from pytest_dsocr.subjects.engine import engine_subject

    def note(what):
        with Path("made.txt").open("a") as made:
            made.write(what + "\\n")

    @pytest.fixture(scope="session")
    def dsocr_subject(dsocr_config):
        note("subject")
        subject = engine_subject(dsocr_config.setup)
        inputs, vision = subject.inputs, subject.vision
        subject.inputs = lambda *args, **kwargs: note("inputs") or inputs(*args, **kwargs)
        subject.vision = lambda *args: note("vision") or vision(*args)
        return subject

    class Noted:
        def __init__(self, reference):
            self.reference = reference
            self.provenance = reference.provenance

        def observe(self, case):
            note(f"observe {case.id}")
            return self.reference.observe(case)

    @pytest.fixture(scope="session")
    def dsocr_reference(dsocr_reference):
        note("reference")
        return Noted(dsocr_reference)
"""
TESTS = """
    import pytest
    from pathlib import Path
    from pytest_dsocr.engine.places import family_named
    from pytest_dsocr.records.case import make_case

    PAGE = Path({page!r})

    def test_report(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report)

    @pytest.mark.parametrize("stage", ["boxes", "tokens"])
    def test_stage(dsocr_report, dsocr_check, stage):
        dsocr_check(dsocr_report, stage)

    MINE = make_case(PAGE, "markdown", "gundam", family=family_named("mini"))

    @pytest.mark.parametrize("dsocr_case", [MINE], ids=["mine"])
    def test_case_of_my_own(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "text")

    def test_page(dsocr_page):
        assert dsocr_page == PAGE

    @pytest.mark.dsocr_level("L2")
    def test_answers(dsocr_reading, dsocr_golden, dsocr_inputs, dsocr_vision, dsocr_stage_timer, dsocr_subject):
        assert dsocr_reading.text == dsocr_golden.output.text
        assert sum(len(span.boxes) for span in dsocr_reading.spans) >= 2
        assert dsocr_inputs["input_ids"][0].tolist() == dsocr_golden.inputs.prompt_ids
        assert len(dsocr_vision["vision_fusion"]) == dsocr_inputs["images_seq_mask"].sum()
        with dsocr_stage_timer("sam"):
            dsocr_subject.vision(dsocr_inputs)
        assert dsocr_stage_timer.times()["sam"].total_ms > 0

    @pytest.mark.dsocr_level("L2")
    @pytest.mark.parametrize("time", ["first", "second"])
    def test_state_is_fresh_each_time(dsocr_state, dsocr_subject, dsocr_inputs, dsocr_kv, dsocr_kv_size, time):
        prompt = dsocr_inputs["input_ids"].shape[1]
        assert dsocr_kv_size == dsocr_kv(dsocr_state).size
        assert set(dsocr_kv(dsocr_state).lengths) == {{(prompt, prompt)}}
        dsocr_subject.step(dsocr_state, int(dsocr_state.logits.argmax()))
        assert set(dsocr_kv(dsocr_state).lengths) == {{(prompt + 1, prompt + 1)}}
"""
READER = """
    import pytest
    import standin

    @pytest.fixture(scope="session")
    def dsocr_subject():
        return standin.{name}()
"""
OWN_CASES = """
    import pytest
    from dataclasses import replace
    from pytest_dsocr.engine.places import family_named
    from pytest_dsocr.records.case import make_case

    class TestTwo:
        @pytest.fixture(params=["ocr", "figure"])
        def dsocr_case(self, request):
            return make_case("page.png", request.param, "base", family=family_named("mini"))

        def test_it(self, dsocr_report, dsocr_check):
            assert dsocr_report.case.id in ("page-base-ocr", "page-base-figure")
            dsocr_check(dsocr_report, "text")

    class TestChanged:
        @pytest.fixture
        def dsocr_case(self, dsocr_case):
            return replace(dsocr_case, max_new_tokens=3)

        def test_it(self, dsocr_report, dsocr_check):
            assert (dsocr_report.case.id, dsocr_report.case.max_new_tokens) == ("page-tiny-markdown", 3)
            dsocr_check(dsocr_report, "text")
"""


@pytest.mark.dsocr_slow
def test_every_fixture_on_the_embedded_checkpoint(pytester: pytest.Pytester) -> None:
    """Count calls: each side runs a case once for all tests, besides one call of vision in a test."""
    page = max(shipped("dev-3"), key=lambda path: path.stem.startswith("figures"))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS.format(page=str(page)))
    result = pytester.runpytest_subprocess("--dsocr-pages", str(page), "--log-file=log", "--log-file-level=INFO")
    result.assert_outcomes(passed=8)
    assert pytester.path.joinpath("log").read_text().count(": input_ids int64 [1, ") == 2, "of both sides"
    case = f"{page.stem}-gundam-markdown"
    made = Counter(pytester.path.joinpath("made.txt").read_text().splitlines())
    assert made == {"subject": 1, "reference": 1, f"observe {case}": 1, "inputs": 1, "vision": 2}


def test_each_folder_is_asked_of_its_own_subject(repository: Repository) -> None:
    """Run the same case in three folders, with two subjects."""
    for folder, name in {"a": "Reader", "b": "Misreader", "c": "Reader"}.items():
        path = repository.pytester.mkdir(folder)
        path.joinpath("conftest.py").write_text(dedent(READER.format(name=name)))
        path.joinpath(f"test_{folder}.py").write_text(
            "def test_text(dsocr_report, dsocr_check): dsocr_check(dsocr_report, 'text')\n"
        )
    result = repository.pytester.runpytest_inprocess("-v", "a", "b", "c")
    reported = {line.split()[0].partition("/")[0]: line.split()[1] for line in result.outlines if "%]" in line}
    assert reported == {"a": "PASSED", "b": "FAILED", "c": "PASSED"}


def test_a_case_may_be_made_in_any_of_pytests_ways(repository: Repository) -> None:
    result = repository.run(OWN_CASES, "-v")
    result.assert_outcomes(passed=3)
    assert {line.split()[0].partition("::")[2] for line in result.outlines if "PASSED" in line} == {
        "TestTwo::test_it[ocr]",
        "TestTwo::test_it[figure]",
        "TestChanged::test_it[page-tiny-markdown]",
    }
    result.stdout.fnmatch_lines(["3 comparisons by test_it.py in 3 cases: 3 MATCH"])


def test_a_fixture_above_the_subject_says_what_it_needs(repository: Repository) -> None:
    result = repository.run("def test_it(dsocr_state): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["dsocr_inputs needs a subject of L1 (inputs); mark the test dsocr_level('L1')"])


def test_every_page_is_given_to_a_test_that_asks_for_pages(repository: Repository) -> None:
    """Collect a page once for all presets and prompts."""
    arguments = ("--dsocr-presets", "tiny", "--dsocr-presets", "base", "--dsocr-prompts", "ocr")
    asks = "def test_page(dsocr_page): pass\ndef test_case(dsocr_case): pass"
    result = repository.run(asks, "--collect-only", "-q", *arguments)
    ids = ["test_page[page]", "test_case[page-tiny-ocr]", "test_case[page-base-ocr]"]
    assert [line.partition("::")[2] for line in result.outlines if "::" in line] == ids


READING = """
    def test_reading(dsocr_reading):
        assert dsocr_reading.text.endswith("Minutes")
        assert [tuple(box) for span in dsocr_reading.spans for box in span.boxes] == [(1, 2, 3, 4)]

    def test_again(dsocr_reading):
        assert (dsocr_reading.mmd, dsocr_reading.inputs) == (None, None)
"""


@pytest.mark.parametrize(("reference", "first"), [("Unopened", "reading"), ("Silent", "comparing")])
def test_a_reading_needs_no_reference(repository: Repository, reference: str, first: str) -> None:
    """Read a page once, even if the reference cannot be opened or fails."""
    repository.settle("Counted", reference)
    result = repository.run(READING + TEST_TEXT if first == "reading" else TEST_TEXT + READING)
    result.assert_outcomes(passed=2, errors=1)
    assert repository.pytester.path.joinpath("read.txt").read_text() == "page.png\n"


SKIPPING = """
    import pytest

    @pytest.fixture(scope="{scope}")
    def dsocr_reference():
        pytest.skip("of my own")
"""
WITH_AND_WITHOUT = """
    def test_both(dsocr_subject, dsocr_reference):
        assert False

    def test_one(dsocr_subject):
        assert dsocr_subject
"""


@pytest.mark.parametrize("scope", ["function", "session"])
def test_a_subject_does_not_need_the_reference_that_loads_meanwhile(scope: str, repository: Repository) -> None:
    repository.pytester.makeconftest(SKIPPING.format(scope=scope))
    result = repository.run(WITH_AND_WITHOUT, "--dsocr-reference=engine")
    result.assert_outcomes(passed=1, skipped=1)
