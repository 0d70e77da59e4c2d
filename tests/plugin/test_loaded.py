"""Loading of the plugin: equal results however it is loaded, clear errors without it, and few imports."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import pytest_dsocr
import suites
from tests.plugin.conftest import Repository
from tests.processes import finished

HEAVY = ("torch", "numpy", "scipy", "PIL", "transformers", "tokenizers", "safetensors", "rapidfuzz", "jinja2")
OF_EVERY_RUN = {
    *("base", "base.elapsed", "base.errors", "base.words"),
    *("plugin", "plugin.elapsed", "plugin.fixtures", "plugin.hooks", "plugin.journal", "plugin.markers"),
    *(
        "plugin.option",
        "plugin.options",
        "plugin.perf",
        "plugin.run",
        "plugin.side_fixtures",
        "plugin.stage_fixtures",
        "plugin.stash",
    ),
    *("report", "report.parts", "report.plan"),
}
"""Modules that are imported in every run, even without a test of ours."""
SUITES = Path(suites.__file__).parent
VARYING = ("environment", "seconds", "id", "started", "ended", "command", "rerun", "elapsed")
EVERY_OUTCOME = """
    import pytest

    @pytest.mark.dsocr(text=0.5)
    def test_text(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "text")

    def test_spans(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "spans", "boxes")

    def test_not_offered(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "tokens")

    @pytest.mark.dsocr_level("L2")
    def test_above(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "prefill_best")

    def test_known(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "boxes")

    def test_nothing(dsocr_check):
        pass

    def test_alone():
        pass
"""
OUTCOMES = {"passed": 4, "failed": 4, "skipped": 3, "xfailed": 3}
"""Outcomes of each run, besides three tests that are *not offered*."""
PAGES = ("page", "second", "third")


def everything_but(result: Any, *names: str) -> Any:
    """Return a result without values that differ from run to run."""
    if isinstance(result, dict):
        return {name: everything_but(value, *names) for name, value in result.items() if name not in names}
    return [everything_but(one, *names) for one in result] if isinstance(result, list) else result


@pytest.mark.dsocr_slow
def test_a_run_says_the_same_however_it_is_loaded(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load it by its entry point, on two workers, and by ``-p dsocr`` without autoload."""
    repository.settle("Misplacer")
    options = [*repository.pages(*PAGES[1:]), "--dsocr-xfails=known.ledger", "--dsocr-out=out"]
    repository.pytester.makefile(".ledger", known="\n".join(f"test_known[{p}-tiny-markdown]  # low" for p in PAGES))
    found = []
    for arguments in ((), ("-n", "2"), ("-p", "dsocr")):
        if "dsocr" in arguments:
            monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        result = repository.run(EVERY_OUTCOME, *arguments, *options)
        result.assert_outcomes(**OUTCOMES)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        written = repository.result()
        written["tests"].sort(key=lambda test: test["nodeid"])
        found.append(everything_but(written, *VARYING))
    assert found[0] == found[1] == found[2]
    assert found[0]["comparisons"] == 12


def test_what_is_needed_is_named(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    result = repository.pytester.runpytest_inprocess(SUITES / "parity", "-p", "no:dsocr")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "these suites need the plugin pytest-dsocr" in result.stderr.str()
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = repository.run("def test_it(dsocr_snapshot): pass", "-p", "dsocr")
    result.assert_outcomes(errors=1)
    assert "dsocr_snapshot needs syrupy" in result.stdout.str()


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_a_run_of_other_tests_imports_the_options_and_the_hooks_alone(
    workers: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    """Compare the imported modules of this package, without those of other plugins."""
    pytester.makeconftest("""
        import sys

        def pytest_unconfigure():
            print("loaded:", *sorted(name for name in sys.modules))
    """)
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_subprocess(*workers)
    result.assert_outcomes(passed=1)
    [loaded] = [line.split()[1:] for line in result.outlines if line.startswith("loaded:")]
    ours = {name.removeprefix("pytest_dsocr.") for name in loaded if name.startswith("pytest_dsocr.")}
    assert ours == OF_EVERY_RUN
    assert not {*HEAVY, "msgspec", "torch", "tqdm"} & {*loaded}


def test_the_commands_load_nothing_heavy_before_they_run() -> None:
    code = f"import sys, pytest_dsocr.cli.main; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert finished(sys.executable, "-c", code).stdout == "[]\n"


@pytest.mark.dsocr_slow
def test_a_users_hypothesis_tests_go_on_without_a_warning(pytester: pytest.Pytester) -> None:
    pytest.importorskip("hypothesis")
    pytester.makepyfile("""
        from hypothesis import given, settings, strategies

        def test_subject(dsocr_subject):
            assert dsocr_subject

        @settings(derandomize=True, database=None)
        @given(strategies.integers())
        def test_own(number):
            assert number == number
    """)
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-W", "error", "--dsocr-checkpoint=synthetic:tiny")
    result.assert_outcomes(passed=2)


@pytest.mark.skipif("TOX_ENV_NAME" not in os.environ, reason="only tox promises to test the built wheel")
def test_the_wheel_is_what_is_tested() -> None:
    assert not Path(pytest_dsocr.__file__).is_relative_to(SUITES.parent / "pytest_dsocr")
