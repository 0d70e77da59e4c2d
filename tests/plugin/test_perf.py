"""The suite of times: accepting a baseline, comparing with it, and reporting a slower stage.

The subject sleeps for a time that a file states, by a clock of its own: a busy machine changes no verdict.
"""

import gc
import json
import re
import shlex
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_dsocr.cost.roofline import Roof, devices
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.doctor.finding import ExaminedRun
from pytest_dsocr.doctor.inputs import accepting
from pytest_dsocr.engine.places import architecture_of
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.plugin.perf_run import roof_of
from pytest_dsocr.reference.goldens import golden_folder
from pytest_dsocr.report.file import read_result
from pytest_dsocr.timing.rounds import QUANTITIES
from tests.plugin.conftest import Repository, unwrapped
from tests.timing.made import Clock, measured

STAGES = (Path(__file__).parents[2] / "suites/perf/test_stages.py").read_text(encoding="utf-8")
SLEEPER = """
    from pathlib import Path

    import standin

    class Sleeper(standin.Reader):
        def read(self, page, **how):
            import test_clock  # which another process has none of

            test_clock.clock.sleep(float(Path("sleep_ms.txt").read_text()) / 1e3)
            return super().read(page, **how)

    class Misreader(Sleeper):
        text = standin.Misreader.text
"""
GOLDEN, SLOWER = ("--dsocr-golden=gold",), "--dsocr-max-slowdown=0.5"
SLEEP_MS = 15.0
UPDATE = "--dsocr-baseline-update"
TEST = r"'test_it\.py::test_is_no_slower\[page\]'"
FIRST_READS = 2
"""Readings before timing starts: one to count, and one to compare with the reference."""
OTHERS = len(QUANTITIES) - 1
"""Number of quantities that a subject of L0 does not offer."""


class Timed:
    """User's repository with a subject that sleeps."""

    def __init__(self, repository: Repository, clock: Clock) -> None:
        self.repository, self.path, self.clock = repository, repository.pytester.path, clock
        repository.pytester.makepyfile(sleeper=SLEEPER)
        (self.path / "gold").mkdir()

    def run(
        self, *more: str, subject: str = "Sleeper", sleep_ms: float = SLEEP_MS, golden: tuple[str, ...] = GOLDEN
    ) -> pytest.RunResult:
        """Run the suite of times."""
        (self.path / "sleep_ms.txt").write_text(str(sleep_ms))
        return self.repository.run(STAGES, f"--dsocr-subject=sleeper:{subject}", *golden, SLOWER, *more)

    @property
    def baselines(self) -> list[Path]:
        """Return the baselines that were written."""
        return sorted((self.path / "gold").glob("baselines/*/*.json"))


@pytest.fixture
def timed(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Iterator[Timed]:
    """Return a repository with a clock that does not depend on the machine."""
    module = types.ModuleType("test_clock")
    vars(module)["clock"] = clock = Clock(tick_ns=0)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # by which pytest-benchmark knows that it is to be off
    monkeypatch.setitem(sys.modules, "test_clock", module)
    monkeypatch.setattr("pytest_dsocr.timing.probe.stopwatch.time", clock)
    monkeypatch.setattr("pytest_dsocr.timing.probe.machine.time", Clock(tick_ns=1_000_000))
    monkeypatch.setattr("pytest_dsocr.timing.probe.machine.WAITED_SHARE", 1e9)
    gc.freeze()  # each round begins with a collection, which takes long in a process with as much in it as this one
    yield Timed(repository, clock)
    gc.unfreeze()


@pytest.fixture
def accepted(timed: Timed) -> Timed:
    """Return a repository with an accepted baseline."""
    timed.run(UPDATE).assert_outcomes(passed=1, skipped=OTHERS)
    return timed


@pytest.mark.dsocr_slow
def test_without_a_baseline_it_is_skipped_with_a_reason_and_no_skip_fails_it(timed: Timed) -> None:
    result = timed.run("-k", "page")
    result.assert_outcomes(skipped=1)
    assert re.search(r"no baseline of \S+/sleeper-sleeper-mini-float32-eager-page-tiny", unwrapped(result))
    timed.run("-k", "page", "--dsocr-no-skip").assert_outcomes(failed=1)
    timed.run("-k", "page", "--dsocr-no-skip", "--dsocr-allow-missing=baseline").assert_outcomes(skipped=1)


@pytest.mark.dsocr_slow
def test_a_run_that_reads_right_is_accepted_and_says_so(timed: Timed) -> None:
    timed.run(UPDATE, "-k", "page", subject="Misreader").assert_outcomes(errors=1)
    assert (timed.baselines, timed.clock.sleeps) == ([], FIRST_READS), "it is refused before it is timed"
    result = timed.run(UPDATE, "--dsocr-out=out")
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=1, skipped=OTHERS)
    [path] = timed.baselines
    assert path.name == "sleeper-sleeper-mini-float32-eager-page-tiny.json"
    written = read_result(timed.path / "out")
    assert re.search(rf"{path.name}, 24 rounds; what it reads: \d MATCH", *written["notes"])
    assert written["perf"]["accepted"] == str(path.relative_to(timed.path))
    kept = json.loads(path.read_bytes())
    assert (kept["parity"]["passes"], kept["parity"]["comparisons"] > 0) == (True, True)
    assert UPDATE in kept["command"]


@pytest.mark.dsocr_slow
@pytest.mark.usefixtures("_installed")
def test_the_first_baseline_makes_the_folder_of_goldens(timed: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept a baseline after ``pip install``: ``./golden`` is created, and found in the next run."""
    monkeypatch.chdir(timed.path)
    wanted = ExaminedRun("mini", "cpu", "float32", "eager", None, None, (), golden_folder(), Path("out"))
    hint = shlex.split(accepting(wanted))
    assert hint[:3] == ["pytest", "--pyargs", "pytest_dsocr.suites.perf"]
    for golden, options in (("golden", ()), ("made", ("--dsocr-golden=made",))):
        timed.run(*hint[3:], *options, golden=()).assert_outcomes(passed=1, skipped=OTHERS)
        assert len([*(timed.path / golden).glob("baselines/*/*.json")]) == 1
        timed.run(*options, golden=()).assert_outcomes(passed=1, skipped=OTHERS)


@pytest.mark.dsocr_slow
@pytest.mark.parametrize("has_baseline", [False, True])
def test_pytest_benchmark_saves_and_compares_and_its_gate_is_in_the_result(
    timed: Timed, request: pytest.FixtureRequest, has_baseline: bool
) -> None:
    """A run without our baseline passes if pytest-benchmark saves its times or compares them."""
    if has_baseline:
        request.getfixturevalue("accepted")
    ours = ("-k", "page", "--dsocr-max-slowdown=9", "--dsocr-out=out")
    result = timed.run(*ours, "--benchmark-save=first")
    assert (result.ret, result.parseoutcomes()) == (pytest.ExitCode.OK, {"passed": 1, "deselected": OTHERS})
    perf = read_result(timed.path / "out")["perf"]
    assert [(one["quantity"], one["pace"]) for one in perf["judgements"]] == [("page", "SAME")] * has_baseline
    [saved] = (timed.path / ".benchmarks").glob("*/*_first.json")
    [benchmark] = json.loads(saved.read_bytes())["benchmarks"]
    assert benchmark["extra_info"]["quantity"] == "page"
    assert benchmark["stats"]["rounds"] == perf["rounds"]["used"]
    assert 1e3 * benchmark["stats"]["median"] == pytest.approx(perf["median_ms"]["page"])
    gate = ("--benchmark-compare", "--benchmark-compare-fail=median:20%")
    assert timed.run(*ours, *gate).ret == pytest.ExitCode.OK
    assert read_result(timed.path / "out")["ended_as"] == "passes"
    result = timed.run(*ours, *gate, sleep_ms=3 * SLEEP_MS)
    assert result.ret != pytest.ExitCode.OK
    found = read_result(timed.path / "out")
    why = "pytest_benchmark failed the run: Performance has regressed."
    assert (found["ended_as"], found["verdict"]) == ("slower", why)
    assert f"verdict         {why}" in result.stdout.str()


@pytest.mark.dsocr_slow
def test_a_slower_one_fails_its_own_test_and_says_all_there_is_to_say(accepted: Timed) -> None:
    result = accepted.run(sleep_ms=3 * SLEEP_MS)
    result.assert_outcomes(failed=1, skipped=OTHERS)
    result.stdout.re_match_lines(
        [
            r"perf/page: SLOWER: \+\d+\.\d% \(.*\), allowed \+50\.0%; \d\d.* ms, the baseline \d\d.* ms, \d\d rounds",
            r" +what else changed: .*",
            rf" +accept: pytest {TEST} --dsocr-subject=.* --dsocr-max-slowdown=0.5 --dsocr-baseline-update",
            rf" +profile: nsys profile --trace=cuda,nvtx python -m pytest {TEST} .* --dsocr-max-slowdown=0.5",
        ]
    )
    assert accepted.run(UPDATE, sleep_ms=3 * SLEEP_MS).ret == pytest.ExitCode.OK
    accepted.run(sleep_ms=3 * SLEEP_MS).assert_outcomes(passed=1, skipped=OTHERS)


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(("argument", "why"), [("-n2", "other workers"), ("--dsocr-isolate", "in this process")])
def test_where_nothing_can_be_timed_the_run_says_so(timed: Timed, argument: str, why: str) -> None:
    result = timed.run(argument)
    result.assert_outcomes(skipped=OTHERS + 1)
    assert why in unwrapped(result)
    assert "the run does not pass" in result.stdout.str()


@pytest.mark.dsocr_slow
def test_once_a_machine_has_baselines_one_that_does_not_fit_is_an_error(accepted: Timed) -> None:
    more = ("-k", "page", "--dsocr-max-new-tokens=9")
    result = accepted.run(*more)
    result.assert_outcomes(errors=1)
    assert "has page.max_new_tokens 24, here 9; accept this one" in unwrapped(result)
    accepted.run(*more, "--dsocr-allow-missing=baseline").assert_outcomes(skipped=1)


def test_the_roof_is_that_of_the_gpu_the_checkpoint_and_the_page() -> None:
    page = next(path for path in shipped("all") if path.stem == "invoice_016")
    counts, times = {"tokens.prompt": 729, "tokens.image": 693, "tokens.output": 64}, {"decode": [14.0] * 3}
    work = Workload((1140, 1101), DEEPSEEK_OCR.presets["gundam"], 36, 64)
    assert roof_of(measured(times, counts), "mini", page) == Roof.of(architecture_of("mini"), work, devices()["h200"])
    assert roof_of(measured(times, counts, machine={"gpu": "NVIDIA B200"}), "mini", page) is None
