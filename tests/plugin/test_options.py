"""Options: their names, places and precedence, and messages for bad values."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr import models as families
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.compare.tolerances import BUDGETS, LOSSES
from pytest_dsocr.engine import checkpoint
from pytest_dsocr.pages.page_list import SUBSETS
from pytest_dsocr.plugin.config import own_config
from pytest_dsocr.plugin.option import value_of
from pytest_dsocr.plugin.options import OPTIONS
from pytest_dsocr.records.config import MISSING, Config, Level
from pytest_dsocr.records.provenance import DTYPES_OF_VENDOR, OF_VENDOR
from pytest_dsocr.subjects.loading import VALID

GOOD: Mapping[str, tuple[str, object]] = {
    "subject": ("json:loads", "json:loads"),
    "isolate": ("Yes", True),
    "subject_time_limit": ("2.5", 2.5),
    "start_limit": ("90", 90.0),
    "checkpoint": ("synthetic:tiny@3", "synthetic:tiny@3"),
    "model": ("unlimited_ocr", "unlimited_ocr"),
    "reference": ("a", Path("a")),
    "kept_answers": ("off", "off"),
    "vendor_env": ("a", Path("a")),
    "time_limit": ("3e2", 300.0),
    "pages": ("a\nb.txt", ("a", "b.txt")),
    "shard": ("2/3", (2, 3)),
    "presets": ("Gundam\nBASE", ("gundam", "base")),
    "prompts": ("ocr\n<image>Read.", ("ocr", "<image>Read.")),
    "repeat": ("149", 149),
    "max_new_tokens": ("20", 20),
    "device": ("cuda:3", "cuda:3"),
    "dtype": ("bfloat16", "bfloat16"),
    "attention": ("flash_attention_2", "flash_attention_2"),
    "reference_device": ("nvidia-h200", "nvidia-h200"),
    "reference_dtype": ("bfloat16", "bfloat16"),
    "reference_attention": ("flash_attention_2", "flash_attention_2"),
    "tolerances": ("coords=0.02\nboxes=1", {"coords": 0.02, "boxes": 1}),
    "quantization_budget": ("kl=0.02", {"kl": 0.02}),
    "max_slowdown": ("decode=0.02\n0.2", {"decode": 0.02, "*": 0.2}),
    "max_rounds": ("100", 100),
    "baseline_update": ("1", True),
    "baseline_days": ("0.5", 0.5),
    "allow_missing": ("recording\nsnapshot", {"recording", "snapshot"}),
    "explain": ("0", 0.0),
    "level": ("L2", Level.STAGES),
    "no_skip": ("true", True),
    "out": ("a", Path("a")),
    "golden": ("a", Path("a")),
    "xfails": ("b.txt", Path("b.txt")),
}
"""Valid text for each option, one value a line, and the value that it means."""
HELP: Mapping[str, Sequence[Iterable[str]]] = {
    "subject": [[VALID.removeprefix("give ")]],
    "model": [families.NAMES],
    "pages": [SUBSETS],
    "presets": [families.PRESET_NAMES],
    "prompts": [families.PROMPT_NAMES],
    "dtype": [("float32", "bfloat16", "float16")],
    "attention": [("eager", "sdpa", "flash_attention_2")],
    "reference_dtype": [DTYPES_OF_VENDOR],
    "reference_attention": [OF_VENDOR],
    "quantization_budget": [BUDGETS, LOSSES],
    "allow_missing": [MISSING],
}
"""Lists of valid words for each option that accepts words."""
BAD: Mapping[str, Sequence[str]] = {
    "subject": ["engines", "vendor:empty", "absent.module:make", "json:make", "json:__name__", "torn:make"],
    "checkpoint": ["minni"],
    "model": ["mini_ocr"],
    "reference": ["absent"],
    "kept_answers": ["torn.py"],
    "vendor_env": ["torn.py"],
    "isolate": ["perhaps"],
    "time_limit": ["0", "soon", "nan", "inf"],
    "pages": ["absent.png", "none.txt", " "],
    "presets": ["huge"],
    "prompts": ["markdwn"],
    "max_new_tokens": ["0", "1.5"],
    "device": ["tpu"],
    "dtype": ["bf16"],
    "reference_device": ["cuda:first"],
    "tolerances": ["boxes", "boxes=few", "boxes=1.5", "boxes=-1", "coords=nan", "crops=1"],
    "quantization_budget": ["int3", "kl", "kl=few", "kl=-1", "kl=nan", "cost=1"],
    "max_slowdown": ["decode", "decode=nan", "0", "decoder=0.05"],
    "shard": ["5/4"],
    "explain": ["-1", "soon"],
    "max_rounds": ["0", "many"],
    "baseline_days": ["0", "inf"],
    "level": ["L9"],
    "out": ["torn.py"],
    "xfails": ["absent.txt", "pages.txt"],
}
"""Invalid values for options of every kind."""
BY_NAME = {option.name: option for option in OPTIONS}


@pytest.fixture(autouse=True)
def _with_files_and_gpus(alone: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    alone.mkdir("empty")
    alone.mkdir("a").joinpath("page.png").touch()
    alone.makepyfile(torn="1 / 0")
    alone.makefile(".txt", pages="# no page\nabsent.png\n", none="# no page\n")
    alone.path.joinpath("b.txt").write_text("a/page.png  # known to fail\n")
    monkeypatch.setattr(checkpoint, "device_named", str)


@pytest.mark.parametrize("name", HELP)
def test_help_lists_every_valid_word(name: str) -> None:
    """Compare the words in the table of options, which imports nothing, with those of their modules."""
    listed = BY_NAME[name].help.replace(" or lossy640", ", lossy640")
    assert all(", ".join(words) in listed for words in HELP[name])


def resolved(pytester: pytest.Pytester, *words: str, ini: Mapping[str, str] = {}) -> Mapping[str, Any]:
    lines = (f"dsocr_{name} = " + text.replace("\n", "\n  ") for name, text in ini.items())
    pytester.makeini("\n".join(["[pytest]", *lines]))
    config = vars(own_config(pytester.parseconfigure(*words)))
    return {name: value for name, value in config.items() if name in BY_NAME}


def refusal(pytester: pytest.Pytester, *words: str, ini: Mapping[str, str] = {}) -> str:
    with pytest.raises(pytest.UsageError) as caught:
        resolved(pytester, *words, ini=ini)
    return str(caught.value)


def test_the_options_are_these(alone: pytest.Pytester, snapshot: SnapshotAssertion) -> None:
    """Pin each option with its default and its help, which users rely on."""
    assert [field.name for field in fields(Config)] == [*BY_NAME, "given_by"] == [*GOOD, "given_by"]
    defaults = {**resolved(alone), "golden": "the shipped folder"}
    assert {option.flag: (option.ini, option.env, option.full_help, defaults[option.name]) for option in OPTIONS} == (
        snapshot
    )


def test_each_may_be_given_in_the_ini_file_the_environment_and_on_the_command_line(
    alone: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {name: text for name, (text, _) in GOOD.items()}
    expected = {name: value for name, (_, value) in GOOD.items()} | {"checkpoint": "unlimited_ocr:synthetic:tiny@3"}
    assert resolved(alone, ini=texts) == expected
    words = [
        word
        for name, text in texts.items()
        for line in ([""] if BY_NAME[name].is_switch else text.split("\n"))
        for word in (BY_NAME[name].flag, line)
        if word
    ]
    assert resolved(alone, *words) == expected
    for name, text in texts.items():
        monkeypatch.setenv(BY_NAME[name].env, text)
    assert resolved(alone) == expected


def test_of_several_places_one_counts(alone: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefer the command line to the environment, and the environment to the ini file, without merging them."""
    ini = {"level": "L9", "presets": "tiny", "no_skip": "true"}
    monkeypatch.setenv("DSOCR_LEVEL", "L1")
    monkeypatch.setenv("DSOCR_PRESETS", "base\nlarge")
    monkeypatch.setenv("DSOCR_NO_SKIP", "off")
    found = resolved(alone, ini=ini)
    assert (found["level"], found["presets"], found["no_skip"]) == (Level.INPUTS, ("base", "large"), False)
    found = resolved(alone, "--dsocr-level=L2", "--dsocr-presets=small", "--dsocr-no-skip", ini=ini)
    assert (found["level"], found["presets"], found["no_skip"]) == (Level.STAGES, ("small",), True)
    for option in OPTIONS:  # as CI systems hand on what was not filled in
        monkeypatch.setenv(option.env, " \n")
    assert resolved(alone)["presets"] == ("gundam",)


def test_the_reference_is_keyed_as_the_subject_unless_said_otherwise(alone: pytest.Pytester) -> None:
    key = ("--dsocr-device=cuda:1", "--dsocr-dtype=bfloat16", "--dsocr-attention=flash_attention_2")
    assert Config(**resolved(alone, *key), given_by={}).reference_key == ("cuda:1", "bfloat16", "flash_attention_2")
    named = Config(**resolved(alone, *key, "--dsocr-reference-dtype=float32"), given_by={})
    assert named.reference_key == ("cuda:1", "float32", "flash_attention_2")


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("update", ["--snapshot-update", "--snapshot-update-new-only", "--dsocr-baseline-update"])
def test_the_first_golden_of_an_installation_makes_a_folder_for_it(alone: pytest.Pytester, update: str) -> None:
    assert resolved(alone, "-p", "syrupy", update)["golden"] == alone.path / "golden"


@pytest.mark.parametrize(("name", "word"), [("reference", "engine"), ("reference", "recorded"), ("checkpoint", "mini")])
def test_a_word_is_no_path_and_a_path_in_the_ini_file_is_relative_to_that(
    alone: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, name: str, word: str
) -> None:
    """Resolve a word even if a folder has that name; the folder is ``./engine``."""
    alone.mkdir(word)
    alone.mkdir("below")
    meant = None if word == "recorded" else word
    for home in (".", "below"):
        monkeypatch.chdir(alone.path / home)
        fast = "--dsocr-subject=engine:fast"
        assert resolved(alone, fast, f"--dsocr-{name}={word}")[name] == meant
        assert resolved(alone, fast, ini={name: word})[name] == meant
        folder = resolved(alone, fast, ini={name: f"./{word}"})[name]
        assert folder != meant
        assert Path(str(folder)).resolve() == alone.path / word


def read(name: str, value: str) -> None:
    option = BY_NAME[name] if name != "subject" else replace(BY_NAME[name], reader="importable_subject")
    value_of(option, [("HERE", [value] if option.many else value)])


@pytest.mark.parametrize("name", BAD)
def test_a_bad_value_is_refused(alone: pytest.Pytester, name: str, snapshot: SnapshotAssertion) -> None:
    """Compare each message, which names the place, the mistake and the valid values."""
    for value in BAD[name]:
        with pytest.raises(DsocrError) as caught:
            read(name, value)
        message = str(caught.value).replace(str(alone.path), "FOLDER").replace(json.__file__, "JSON")
        assert message.removeprefix("HERE: ") == snapshot(name=value)


def test_a_refusal_names_the_place_of_the_bad_value(alone: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(alone, "--dsocr-level=L9").startswith("--dsocr-level: 'L9' is not a level; give L0 (text), ")
    assert refusal(alone, ini={"level": "L9"}).startswith(f"dsocr_level in {alone.path / 'tox.ini'}: 'L9' is not")
    assert "no page absent.png" in refusal(alone, "--dsocr-pages=dev-3", "--dsocr-pages=absent.png")
    monkeypatch.setenv("DSOCR_LEVEL", "L9")
    assert refusal(alone).startswith("DSOCR_LEVEL: 'L9' is not a level")


@pytest.mark.dsocr_slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_bad_variable_is_an_error_of_collection_of_tests_that_compare_and_of_no_others(
    alone: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    """Let other tests pass: the variable may be meant for another run in the same shell."""
    monkeypatch.setenv("DSOCR_LEVEL", "L9")
    arguments = ("-p", "xdist", *workers) if workers else ()
    run = alone.runpytest_subprocess if workers else alone.runpytest_inprocess
    alone.makepyfile(test_other="def test_it(): pass")
    run(*arguments).assert_outcomes(passed=1)
    alone.makepyfile(test_ours="def test_it(dsocr_config): pass")
    result = run(*arguments)
    assert result.ret != pytest.ExitCode.OK
    assert "DSOCR_LEVEL: 'L9' is not a level; give L0 (text), " in result.stdout.str()
    assert alone.runpytest_inprocess("--help").ret == pytest.ExitCode.OK


def test_windows_is_refused_where_something_is_compared(
    alone: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_dsocr.base.process.sys", SimpleNamespace(platform="win32"))
    assert refusal(alone, "--dsocr-level", "L0").startswith("pytest-dsocr does not run on Windows")


@pytest.mark.parametrize("checkpoint", ["mini", "deepseek_ocr2:mini", "unlimited_ocr:mini"])
def test_a_checkpoint_is_of_the_model_that_is_named(alone: pytest.Pytester, checkpoint: str) -> None:
    found = resolved(alone, "--dsocr-model=deepseek_ocr2", f"--dsocr-checkpoint={checkpoint}")
    assert found["checkpoint"] == "deepseek_ocr2:mini"
