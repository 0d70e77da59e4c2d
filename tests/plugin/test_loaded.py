"""However the plugin is loaded, and on however many workers, a run says the same; without it, suites say so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import pytest_dsocr
import suites
from tests.plugin.conftest import Repository

HEAVY = ("torch", "numpy", "scipy", "PIL", "transformers", "tokenizers", "safetensors", "rapidfuzz", "jinja2")
SUITES = Path(suites.__file__).parent
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
WAYS: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "as it is installed": ((), {}),
    "by its name as well": (("-p", "dsocr"), {}),
    "without xdist": (("-p", "no:xdist"), {}),
    "on two workers": (("-n", "2"), {}),
    "by its name alone": (("-p", "dsocr"), ALONE),
}
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
SNAPSHOT = """
    from pytest_dsocr.plugin.snapshots import compare_snapshot

    def test_it(dsocr_snapshot, dsocr_check):
        dsocr_check([compare_snapshot("reading", dsocr_snapshot, {{"boxes": {boxes}}})])
"""
OUTCOMES = {"passed": 4, "failed": 4, "skipped": 6, "xfailed": 3}
PAGES = ("page", "second", "third")


def everything_but(result: Any, *names: str) -> Any:
    """A result without what differs from run to run."""
    if isinstance(result, dict):
        return {name: everything_but(value, *names) for name, value in result.items() if name not in names}
    return [everything_but(one, *names) for one in result] if isinstance(result, list) else result


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What each way of loading told, to be compared with the first."""
    return {}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_says_the_same_however_it_is_loaded(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, told: dict[str, Any], way: str
) -> None:
    repository.settle("Misplacer")
    for name in ("second", "third"):
        shutil.copy(repository.pytester.path / "page.png", repository.pytester.path / f"{name}.png")
    repository.pytester.makefile(".ledger", known="\n".join(f"test_known[{p}-tiny-markdown]  # low" for p in PAGES))
    arguments, environment = WAYS[way]
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    options = [word for page in PAGES for word in ("--dsocr-pages", f"{page}.png")]
    result = repository.run(EVERY_OUTCOME, *arguments, *options, "--dsocr-xfails", "known.ledger", "--dsocr-out", "out")
    result.assert_outcomes(**OUTCOMES)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    written = json.loads(repository.pytester.path.joinpath("out", "dsocr.json").read_text())
    written["tests"].sort(key=lambda test: test["nodeid"])
    found = everything_but(written, "environment", "seconds", "id", "started", "ended", "command", "rerun", "spent")
    assert found == told.setdefault("first", found)
    assert found["comparisons"] == 12


@pytest.mark.parametrize(
    ("arguments", "environment"), [(("-p", "no:dsocr"), {}), ((), ALONE)], ids=["refused", "not autoloaded"]
)
def test_the_suites_say_that_they_need_it(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    environment: Mapping[str, str],
) -> None:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    result = pytester.runpytest_inprocess(SUITES / "parity", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.errlines if line] == [
        "ERROR: these suites need the plugin pytest-dsocr; leave out -p no:dsocr, "
        "or, where plugins are not autoloaded, add -p dsocr"
    ]


def test_snapshots_say_that_they_need_syrupy(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*next(iter(ALONE.items())))
    result = repository.run("def test_it(dsocr_snapshot): pass", "-p", "dsocr")
    result.assert_outcomes(errors=1)
    why = "dsocr_snapshot needs syrupy; install it, or add -p syrupy where plugins are not autoloaded"
    assert why in result.outlines


def test_snapshots_are_kept_where_syrupy_is_named_as_well(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*next(iter(ALONE.items())))
    arguments = ("-p", "dsocr", "-p", "syrupy", "--dsocr-golden", "golden")
    repository.run(SNAPSHOT.format(boxes=3), *arguments, "--snapshot-update").assert_outcomes(passed=1)
    repository.run(SNAPSHOT.format(boxes=3), *arguments).assert_outcomes(passed=1)
    repository.run(SNAPSHOT.format(boxes=4), *arguments).assert_outcomes(failed=1)


@pytest.mark.usefixtures("cold")
def test_import_of_the_plugin_loads_nothing_heavy() -> None:
    code = (
        "import sys, pytest_dsocr.plugin.hooks, pytest_dsocr.plugin.fixtures, pytest_dsocr.plugin.stage_fixtures;"
        "import pytest_dsocr.cli.main;"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules], pytest_dsocr.plugin.hooks.__name__)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["pytest_dsocr.plugin.hooks"]


@pytest.mark.usefixtures("cold")
def test_nor_does_a_whole_run_of_other_tests(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(f"""
        import sys

        def pytest_unconfigure():
            print("loaded:", [name for name in {HEAVY!r} if name in sys.modules])
    """)
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    assert "loaded: []" in result.outlines


@pytest.mark.skipif("TOX_ENV_NAME" not in os.environ, reason="only tox promises to test the built wheel")
def test_the_wheel_is_what_is_tested() -> None:
    assert not Path(pytest_dsocr.__file__).is_relative_to(SUITES.parent / "pytest_dsocr")
