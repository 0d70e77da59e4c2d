"""What every option says of a bad value: where it was given, what is wrong, and what is valid."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace

import pytest
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.plugin.config import own_config
from pytest_dsocr.plugin.options import OPTIONS

BAD: Mapping[str, Sequence[str]] = {
    "subject": ["sessions", "vendor:empty", "absent.module:make", "json:make", "json:__name__", "torn:make"],
    "checkpoint": ["maxi"],
    "reference": ["absent"],
    "vendor_env": ["torn.py"],
    "isolate": ["perhaps"],
    "fresh": ["perhaps"],
    "subject_time_limit": ["0"],
    "time_limit": ["0", "soon", "nan", "inf"],
    "pages": ["absent.png", "none.txt", " "],
    "presets": ["huge"],
    "prompts": ["poem"],
    "max_new_tokens": ["0", "1.5"],
    "device": ["tpu"],
    "dtype": ["bf16"],
    "attention": ["fast"],
    "reference_device": ["cuda:first"],
    "reference_dtype": ["float16"],
    "reference_attention": ["sdpa"],
    "tolerances": ["boxes", "boxes=few", "boxes=1.5", "boxes=-1", "coords=nan", "crops=1"],
    "slower": ["decode", "decode=nan", "0", "decoder=0.05"],
    "shard": ["5/4"],
    "explain": ["-1", "soon"],
    "rounds": ["0", "many"],
    "baseline_update": ["perhaps"],
    "baseline_days": ["0", "inf"],
    "may_miss": ["luck"],
    "level": ["L9"],
    "no_skip": ["perhaps"],
    "out": ["torn.py"],
    "golden": ["torn.py"],
    "xfails": ["absent.txt", "pages.txt"],
}
"""Bad values of every option."""


@pytest.fixture(autouse=True)
def _with_files(alone: pytest.Pytester) -> None:
    alone.mkdir("empty")
    alone.makepyfile(torn="1 / 0")
    alone.makefile(".txt", pages="# no page\nabsent.png\n", none="# no page\n")


def refusal(pytester: pytest.Pytester, *arguments: str) -> str:
    """What a run is refused with."""
    with pytest.raises(pytest.UsageError) as caught:
        own_config(pytester.parseconfigure(*arguments))
    return str(caught.value)


def places(name: str, value: str, pytester: pytest.Pytester) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Give ``value`` in each place in turn; yield how the place is called, and the arguments of the run."""
    [option] = (option for option in OPTIONS if option.name == name)
    if not option.is_switch:
        yield option.flag, (option.flag, value)
    if value.strip():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(option.env, value)
            yield option.env, ()
    ini = pytester.makeini(f"[pytest]\n{option.ini} = {value}")
    yield f"{option.ini} in {ini}", ()


@pytest.mark.parametrize("name", BAD)
def test_a_bad_value_is_refused_wherever_it_is_given(
    alone: pytest.Pytester, name: str, snapshot: SnapshotAssertion
) -> None:
    """In the same words, which say where it was given, what is wrong and what is valid."""
    for value in BAD[name]:
        found = {
            refusal(alone, *arguments).removeprefix(f"{place}: ") for place, arguments in places(name, value, alone)
        }
        [why] = found
        assert why.replace(str(alone.path), "HERE").replace(json.__file__, "JSON") == snapshot(name=value)


def test_every_option_has_a_bad_value() -> None:
    assert {*BAD} == {option.name for option in OPTIONS}


def test_one_bad_page_among_good_ones_is_refused(alone: pytest.Pytester) -> None:
    assert "'absent.png'" in refusal(alone, "--dsocr-pages", "dev-3", "--dsocr-pages", "absent.png")


def test_what_counts_less_is_not_looked_at(alone: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSOCR_LEVEL", "L9")
    own_config(alone.parseconfigure("--dsocr-level", "L1"))


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_bad_variable_is_an_error_of_collection_of_tests_that_compare_and_of_no_others(
    alone: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    """It may be meant for another run of the same shell."""
    monkeypatch.setenv("DSOCR_LEVEL", "L9")
    arguments = ("-p", "xdist", *workers) if workers else ()
    alone.makepyfile(test_other="def test_it(): pass")
    alone.runpytest_subprocess(*arguments).assert_outcomes(passed=1)
    alone.makepyfile(test_ours="def test_it(dsocr_config): pass")
    result = alone.runpytest_subprocess(*arguments)
    assert result.ret != pytest.ExitCode.OK
    assert "DSOCR_LEVEL: 'L9' is not a level; give L0 (text), " in result.stdout.str()


@pytest.mark.parametrize(
    ("asked", "told"), [("--help", "--dsocr-level=LEVEL*"), ("--markers", "@pytest.mark.dsocr_level*")]
)
def test_help_is_given_to_those_who_need_it(
    alone: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, asked: str, told: str
) -> None:
    monkeypatch.setenv("DSOCR_LEVEL", "L9")
    result = alone.runpytest_inprocess(asked)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([f"*{told}"])


def test_windows_is_refused_where_something_is_compared(
    alone: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = "pytest-dsocr does not run on Windows; run it on Linux or macOS, or in WSL"
    with monkeypatch.context() as patch:
        patch.setattr("pytest_dsocr.foundation.process.sys", SimpleNamespace(platform="win32"))
        assert refusal(alone, "--dsocr-level", "L0") == refused
    own_config(alone.parseconfigure("--dsocr-level", "L0"))


def test_the_refusal_is_the_whole_output_and_exit_code_4(alone: pytest.Pytester) -> None:
    alone.makepyfile("def test_it(): pass")
    result = alone.runpytest_inprocess("--dsocr-level", "L9")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.outlines == []
    [told] = filter(None, result.errlines)
    assert told.startswith("ERROR: --dsocr-level: 'L9' is not a level; give L0 (text), ")
