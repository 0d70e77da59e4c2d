"""Distribution of tests to pytest-xdist's workers: by case unless the user chooses another way."""

import re
from collections import defaultdict

import pytest

from pytest_dsocr.base.process import cores
from pytest_dsocr.plugin.case_scheduling import case_of
from pytest_dsocr.plugin.config import WORKERS, on_own_gpu
from pytest_dsocr.plugin.hooks import pytest_xdist_auto_num_workers, pytest_xdist_make_scheduler
from pytest_dsocr.plugin.options import SPREAD
from pytest_dsocr.report.file import read_result
from tests.plugin.conftest import TEST_TEXT, Repository
from tests.report.made import config


@pytest.mark.parametrize(
    ("device", "reference", "worker", "placed"),
    [
        ("cuda", "cuda", "gw1", ("cuda:1", "cuda:1")),
        ("cuda", "cuda", "gw2", ("cuda:0", "cuda:0")),
        ("cuda", "nvidia-h200", "gw1", ("cuda:1", "nvidia-h200")),
        ("cuda:0", "cuda", "gw1", ("cuda:0", "cuda")),
        ("cpu", "cuda", "gw1", ("cpu", "cuda")),
        ("cuda", "cuda", "", ("cuda", "cuda")),
    ],
)
def test_each_worker_has_a_gpu_of_its_own(
    device: str, reference: str, worker: str, placed: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    own = on_own_gpu(config(device=device, reference_device=reference), worker)
    assert (own.device, own.reference_device) == placed


@pytest.mark.parametrize(
    ("test", "case"),
    [
        ("suites/parity/test_case.py::test_boxes[form_015-gundam-markdown]", "form_015-gundam-markdown"),
        ("a/test_mine.py::TestIt::test_it[x-1-tiny-free-2]", "x-1-tiny-free"),
        ("t.py::test_it[a-large-prompt_0123abcd]", "a-large-prompt_0123abcd"),
        ("t.py::test_it[a-gundam-markdowns]", None),
        ("t.py::test_a-gundam-markdown", None),
    ],
)
def test_a_tests_case_is_read_off_its_id(test: str, case: str | None) -> None:
    assert case_of(test) == case


TESTS = """
    import pytest

    @pytest.mark.parametrize("test", "abcd")
    @pytest.mark.parametrize("case", [f"page_{n}-gundam-markdown" for n in range(6)])
    def test_it(case, test):
        pass

    def test_alone():
        pass
"""


@pytest.mark.dsocr_slow
def test_the_tests_of_a_case_share_a_worker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-v", "-n", "2", "--dsocr-explain=0")
    result.assert_outcomes(passed=25)
    found = defaultdict(set)
    for worker, case in re.findall(r"\[(gw\d)\].*PASSED.*::test_it\[(.*)-.\]", result.stdout.str()):
        found[case].add(worker)
    assert {len(on) for on in found.values()} == {1}
    assert set.union(*found.values()) == {"gw0", "gw1"}
    chosen = pytester.parseconfigure("-n", "2", "--dist", "worksteal", "--dsocr-explain=0")
    chosen.hook.pytest_cmdline_main(config=chosen)
    assert pytest_xdist_make_scheduler(chosen, None) is None, "another distribution was chosen"


@pytest.mark.parametrize(
    "arguments", [("--dsocr-subject=standin:Unmade",), ("-x", "--dsocr-subject=standin:Misreader")]
)
def test_a_run_that_failures_end_is_not_one_that_a_user_interrupts(
    arguments: tuple[str, ...], repository: Repository
) -> None:
    """Without workers it has the same status."""
    result = repository.run(TEST_TEXT, "-n", "1", "--dsocr-explain=0", "--dsocr-out=out", *arguments, apart=True)
    reported = read_result(repository.pytester.path / "out")
    assert (result.ret, reported["ended_as"]) == (pytest.ExitCode.TESTS_FAILED, "wrong")
    assert "interrupted" not in reported["verdict"]


@pytest.mark.dsocr_slow
def test_what_is_left_of_a_case_that_killed_a_worker_is_reported_and_not_tried(repository: Repository) -> None:
    repository.pytester.makepyfile(
        dies="import os, standin\n\nclass Dies(standin.Reader):\n    def read(self, page, **how): os._exit(0)\n"
    )
    tests = TEST_TEXT + TEST_TEXT.replace("text", "boxes")
    result = repository.run(tests, "-n", "2", "--dsocr-subject=dies:Dies", "--dsocr-out=out", apart=True)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["not run, because its case killed a worker in test_it.py::test_text[[]page-tiny-markdown]"]
    )
    reported = read_result(repository.pytester.path / "out")
    assert len(reported["tests"]) == 2
    assert [one["fault"]["case"] for one in reported["tests"]] == ["page-tiny-markdown"] * 2


@pytest.mark.parametrize(
    ("arguments", "workers"),
    [
        ((), WORKERS),
        (("--dsocr-subject=cli:my-ocr {page}",), 0),
        (("--dsocr-checkpoint=synthetic:tiny",), 0),
        (("--dsocr-device=cuda:0",), 0),
        (("--dsocr-level=L9",), 0),
    ],
)
def test_compare_spreads_a_subject_with_stages_and_no_other(
    arguments: tuple[str, ...], workers: int, pytester: pytest.Pytester
) -> None:
    config = pytester.parseconfig("-p", "dsocr", SPREAD, *arguments)
    chosen = config.hook.pytest_xdist_auto_num_workers(config=config)
    assert chosen == (workers if cores() >= WORKERS else 0)
    assert pytest_xdist_auto_num_workers(pytester.parseconfig("-n", "auto", *arguments)) is None, "not ours to choose"
