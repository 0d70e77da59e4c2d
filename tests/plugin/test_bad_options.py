"""What every option says of a bad value: where it was given, what is wrong, and what is valid."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import pytest

from pytest_dsocr.plugin.config import own_config
from pytest_dsocr.plugin.options import OPTIONS
from pytest_dsocr.reference.vendor_code.files import FILES

PAGES = "dev-3, dev-20, typeset, all"
TOLERANCES = "boxes, coords, text, seam, logits, ties"
STAGES = (
    "tokenizer, sam, clip, projector, vision_fusion, vision, prefill, first_token, decode, decode.early, decode.late, "
    "postprocess, page"
)
LACKS = f"lacks {', '.join(FILES)}; give a folder with the vendor's Python files"
NO_FOLDER = "is not a folder; give one, which is made if it does not exist"
TOLD: Sequence[tuple[str, str, str]] = (
    (
        "subject",
        "sessions",
        "'sessions' names no subject; give session, session:fast, vendor:FOLDER, fork:FOLDER, package.module:factory, "
        "processor:package.module:Class, "
        "cli:COMMAND, or http://HOST:PORT/v1?model=NAME",
    ),
    ("subject", "vendor:empty", f"empty {LACKS}"),
    (
        "subject",
        "absent.module:make",
        "'absent.module:make': there is no module absent, neither in {here} nor installed; "
        "give session, session:fast, vendor:FOLDER, fork:FOLDER, package.module:factory, "
        "processor:package.module:Class, cli:COMMAND, or http://HOST:PORT/v1?model=NAME",
    ),
    ("subject", "json:make", "json ({json}) has no make; it has dump, dumps, detect_encoding, load, loads"),
    ("subject", "json:__name__", "json:__name__ cannot be called (it is of type str); give a class or a function"),
    (
        "subject",
        "torn:make",
        "torn cannot be imported (ZeroDivisionError: division by zero); fix it, or name another subject",
    ),
    (
        "checkpoint",
        "maxi",
        "'maxi' is not a checkpoint; give mini, a checkpoint's folder, synthetic:tiny, synthetic:small, "
        "synthetic:full, or a hub name",
    ),
    (
        "reference",
        "absent",
        "there is no folder 'absent'; give recorded, session, a folder with the vendor's Python files, or one of "
        "recordings",
    ),
    ("vendor_env", "torn.py", "there is no folder 'torn.py'; give one, or leave the option out"),
    ("isolate", "perhaps", "'perhaps' is neither yes nor no; give true or false"),
    ("fresh", "perhaps", "'perhaps' is neither yes nor no; give true or false"),
    ("subject_time_limit", "0", "'0' is not a number of seconds above 0"),
    ("time_limit", "0", "'0' is not a number of seconds above 0"),
    ("time_limit", "soon", "'soon' is not a number of seconds above 0"),
    ("time_limit", "nan", "'nan' is not a number of seconds above 0"),
    ("time_limit", "inf", "'inf' is not a number of seconds above 0"),
    (
        "pages",
        "absent.png",
        f"there is no page 'absent.png'; give an image, a folder, a list file, a PDF, or {PAGES}",
    ),
    (
        "pages",
        "none.txt",
        "the list none.txt names no pages; write the path of one on each line",
    ),
    (
        "pages",
        " ",
        f"names nothing; give image, folder of images, list file, PDF, or shipped pages: {PAGES}, or leave it out",
    ),
    (
        "presets",
        "huge",
        "there is no preset 'huge'; give one of tiny, small, base, large, gundam, or a Preset of your own",
    ),
    (
        "prompts",
        "poem",
        "'poem' is not a prompt; give one of markdown, ocr, free, figure, describe, or a text with <image> in it",
    ),
    ("max_new_tokens", "0", "'0' is not a number of tokens, 1 or more"),
    ("max_new_tokens", "1.5", "'1.5' is not a number of tokens, 1 or more"),
    ("device", "tpu", "'tpu' is not a device; give cpu, cuda or cuda:N"),
    ("dtype", "bf16", "'bf16' is not one of float32, bfloat16, float16"),
    ("attention", "fast", "'fast' is not one of eager, sdpa, flash_attention_2"),
    (
        "reference_device",
        "cuda:first",
        "'cuda:first' is not a device; give cpu, cuda, cuda:N, or a recording's, such as nvidia-h200",
    ),
    ("reference_dtype", "float16", "'float16' is not one of float32, bfloat16"),
    ("reference_attention", "sdpa", "'sdpa' is not one of eager, flash_attention_2"),
    ("tolerances", "boxes", f"'boxes' is not a tolerance; give NAME=VALUE with NAME one of {TOLERANCES}"),
    ("tolerances", "boxes=few", f"'boxes=few' is not a tolerance; give NAME=VALUE with NAME one of {TOLERANCES}"),
    ("tolerances", "boxes=1.5", "the tolerance boxes=1.5 is not a whole number of 0 or more; give one"),
    ("tolerances", "boxes=-1", "the tolerance boxes=-1 is not a whole number of 0 or more; give one"),
    ("tolerances", "coords=nan", "the tolerance coords=nan is not a number of 0 or more; give one"),
    ("tolerances", "crops=1", f"there is no tolerance 'crops'; there are {TOLERANCES}"),
    ("slower", "decode", "'decode' is not a number above 0, such as 0.05, or decode=0.05"),
    ("slower", "decode=nan", "'nan' is not a number above 0, such as 0.05, or decode=0.05"),
    ("slower", "0", "'0' is not a number above 0, such as 0.05, or decode=0.05"),
    ("slower", "decoder=0.05", f"there is no stage 'decoder'; there are {STAGES}"),
    ("shard", "5/4", "'5/4' is no part of a run; give i/n with i from 1 to n, such as 1/4"),
    ("explain", "-1", "'-1' is not a number of seconds, 0 or more"),
    ("explain", "soon", "'soon' is not a number of seconds, 0 or more"),
    ("rounds", "0", "'0' is not a number of rounds, 1 or more"),
    ("rounds", "many", "'many' is not a number of rounds, 1 or more"),
    ("baseline_update", "perhaps", "'perhaps' is neither yes nor no; give true or false"),
    ("baseline_days", "0", "'0' is not a number of days above 0"),
    ("baseline_days", "inf", "'inf' is not a number of days above 0"),
    ("may_miss", "luck", "'luck' is not one of baseline, gpu, recording, snapshot, timings, vendor"),
    ("level", "L9", "'L9' is not a level; give L0 (text), L1 (inputs), L2 (stages and cache), L3 (named modules)"),
    ("no_skip", "perhaps", "'perhaps' is neither yes nor no; give true or false"),
    ("out", "torn.py", f"'torn.py' {NO_FOLDER}"),
    ("golden", "torn.py", f"'torn.py' {NO_FOLDER}"),
    ("xfails", "absent.txt", "there is no file 'absent.txt'; give one, or leave the option out"),
    ("xfails", "pages.txt", "pages.txt, line 2: absent.png has no reason; write one behind it, after '  # '"),
)
"""An option, a bad value, and the whole sentence behind where it was given."""


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


def sentence(pytester: pytest.Pytester, told: str) -> str:
    return told.format(here=pytester.path, json=json.__file__)


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


@pytest.mark.parametrize(("name", "value", "told"), TOLD, ids=[f"{name}={value}" for name, value, _ in TOLD])
def test_a_bad_value_is_refused_wherever_it_is_given(alone: pytest.Pytester, name: str, value: str, told: str) -> None:
    for place, arguments in places(name, value, alone):
        assert refusal(alone, *arguments) == f"{place}: {sentence(alone, told)}"


def test_every_option_has_a_bad_value() -> None:
    assert {name for name, _, _ in TOLD} == {option.name for option in OPTIONS}


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
