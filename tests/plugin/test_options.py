"""Options: which there are, where they may be given, and which of several counts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.engine import checkpoint
from pytest_dsocr.observation.config import Config
from pytest_dsocr.observation.level import Level
from pytest_dsocr.plugin.config import own_config
from pytest_dsocr.plugin.options import OPTIONS

Row = tuple[tuple[str, object], ...]
FOLDERS: Row = tuple((name, Path(name)) for name in "abc")

GIVEN: Mapping[str, Row] = {
    "subject": tuple((name, name) for name in ("json:loads", "json:dumps", "json:JSONDecoder")),
    "isolate": (("", True), ("off", False), ("Yes", True)),
    "subject_time_limit": (("1", 1.0), ("2.5", 2.5), ("3e2", 300.0)),
    "checkpoint": tuple((name, name) for name in ("synthetic:tiny@3", "a", "deepseek-ai/DeepSeek-OCR")),
    "reference": FOLDERS,
    "vendor_env": FOLDERS,
    "time_limit": (("1", 1.0), ("2.5", 2.5), ("3e2", 300.0)),
    "fresh": (("", True), ("off", False), ("Yes", True)),
    "pages": (("a\nb.txt", ("a", "b.txt")), ("dev-20", ("dev-20",)), ("b\nall", ("b", "all"))),
    "shard": (("1/1", (1, 1)), ("2/3", (2, 3)), ("4/4", (4, 4))),
    "presets": (("tiny", ("tiny",)), ("Small\nBASE", ("small", "base")), ("large\ntiny", ("large", "tiny"))),
    "prompts": (("ocr\nfree", ("ocr", "free")), ("<image>Read.", ("<image>Read.",)), ("figure", ("figure",))),
    "max_new_tokens": (("1", 1), ("8192", 8192), ("20", 20)),
    "device": (("cuda", "cuda"), ("cpu", "cpu"), ("cuda:3", "cuda:3")),
    "dtype": (("bfloat16", "bfloat16"), ("float32", "float32"), ("float16", "float16")),
    "attention": (("sdpa", "sdpa"), ("eager", "eager"), ("flash_attention_2", "flash_attention_2")),
    "reference_device": (("cuda:1", "cuda:1"), ("nvidia-h200", "nvidia-h200"), ("cuda", "cuda")),
    "reference_dtype": (("bfloat16", "bfloat16"), ("float32", "float32"), ("bfloat16", "bfloat16")),
    "reference_attention": (("flash_attention_2",) * 2, ("eager",) * 2, ("flash_attention_2",) * 2),
    "tolerances": (
        ("boxes=1", {"boxes": 1}),
        ("coords=0.02\nseam=1e-3", {"coords": 0.02, "seam": 1e-3}),
        ("ties=8", {"ties": 8}),
    ),
    "slower": (
        ("0.1", {"*": 0.1}),
        ("decode=0.02\nprefill=1", {"decode": 0.02, "prefill": 1.0}),
        ("decode.late=3e-2\n0.2", {"decode.late": 0.03, "*": 0.2}),
    ),
    "rounds": (("1", 1), ("100", 100), ("20", 20)),
    "baseline_update": (("", True), ("off", False), ("Yes", True)),
    "baseline_days": (("1", 1.0), ("0.5", 0.5), ("3e2", 300.0)),
    "may_miss": (("gpu", {"gpu"}), ("recording\nsnapshot", {"recording", "snapshot"}), ("vendor", {"vendor"})),
    "explain": (("0", 0.0), ("2.5", 2.5), ("3e2", 300.0)),
    "level": (("L3", Level.MODULES), ("L0", Level.TEXT), ("L2", Level.STAGES)),
    "no_skip": (("", True), ("off", False), ("Yes", True)),
    "out": FOLDERS,
    "golden": FOLDERS,
    "xfails": tuple((f"{name}.ledger", Path(f"{name}.ledger")) for name in "abc"),
}
"""Of each option, a good value on the command line, in the environment and in the ini file; lists have one a line."""

NAMES = tuple(GIVEN)
PLACES = ("command line", "environment", "ini file", "default")
"""Where options are given, what counts most first."""


@pytest.fixture(autouse=True)
def _with_files_and_gpus(alone: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        alone.mkdir(name).joinpath("page.png").touch()
        alone.path.joinpath(f"{name}.txt").write_text(f"{name}/page.png\n")
        alone.path.joinpath(f"{name}.ledger").touch()
    monkeypatch.setattr(checkpoint, "device_named", str)


def configure(pytester: pytest.Pytester, given: Mapping[str, Mapping[str, str]]) -> Mapping[str, object]:
    """Resolve a run's options, given by place and name."""
    words = [word for name, text in given.get("command line", {}).items() for word in typed(name, text)]
    in_ini = (f"dsocr_{name} = " + text.replace("\n", "\n  ") for name, text in given.get("ini file", {}).items())
    pytester.makeini("\n".join(["[pytest]", *in_ini]))
    with pytest.MonkeyPatch.context() as patch:
        for name, text in given.get("environment", {}).items():
            patch.setenv(f"DSOCR_{name.upper()}", text)
        return vars(own_config(pytester.parseconfigure(*words)))


def typed(name: str, text: str) -> Iterator[str]:
    for line in text.split("\n"):
        yield f"--dsocr-{name.replace('_', '-')}"
        if line:
            yield line


@pytest.fixture
def defaults(alone: pytest.Pytester) -> Mapping[str, object]:
    return configure(alone, {})


def test_the_options_are_these(alone: pytest.Pytester, snapshot: SnapshotAssertion) -> None:
    """Each with what it is where nobody gives it, and its help. A change here is one for users."""
    assert [field.name for field in fields(Config)] == [option.name for option in OPTIONS] == [*NAMES]
    defaults = {**configure(alone, {}), "golden": "the shipped folder"}
    assert {option.flag: (option.ini, option.env, option.full_help, defaults[option.name]) for option in OPTIONS} == (
        snapshot
    )
    shown = alone.runpytest_inprocess("--help").stdout.str()
    assert re.findall(r"^  (--dsocr-[\w-]+)", shown, re.MULTILINE) == [option.flag for option in OPTIONS]
    assert re.findall(r"^  (dsocr_\w+) \(", shown, re.MULTILINE) == [option.ini for option in OPTIONS]


@pytest.mark.parametrize("place", PLACES)
def test_what_counts_most_is_taken_and_nothing_is_added_to_it(
    alone: pytest.Pytester, place: str, defaults: Mapping[str, object]
) -> None:
    """Every option is given there, and in all the places that count less."""
    at = PLACES.index(place)
    given = {where: {name: GIVEN[name][k][0] for name in NAMES} for k, where in enumerate(PLACES[:-1]) if k >= at}
    expected = defaults if place == "default" else {name: GIVEN[name][at][1] for name in NAMES}
    assert configure(alone, given) == expected


def test_the_table_tells_the_places_apart(defaults: Mapping[str, object]) -> None:
    for name in NAMES:
        values = [*(value for _, value in GIVEN[name]), defaults[name]]
        assert len(values) == len(PLACES)
        assert all(one != other for one, other in pairwise(values)), name


@pytest.mark.parametrize("empty", ["", " \n"])
def test_an_empty_variable_is_as_good_as_none(
    alone: pytest.Pytester, empty: str, defaults: Mapping[str, object]
) -> None:
    """As CI systems hand on what was not filled in."""
    assert configure(alone, {"environment": dict.fromkeys(NAMES, empty)}) == defaults


def test_the_reference_is_keyed_as_the_subject_unless_told_otherwise(alone: pytest.Pytester) -> None:
    key = {"device": "cuda:1", "dtype": "bfloat16", "attention": "flash_attention_2"}
    given: Any = configure(alone, {"command line": key})
    assert Config(**given).reference_key == (*key.values(),)
    named: Any = configure(alone, {"command line": {**key, "reference_dtype": "float32"}})
    assert Config(**named).reference_key == ("cuda:1", "float32", "flash_attention_2")


@pytest.mark.parametrize(
    ("name", "word"), [("reference", "session"), ("reference", "recorded"), ("checkpoint", "mini")]
)
@pytest.mark.parametrize("home", [".", "below"])
def test_a_word_is_no_path_wherever_it_is_given(
    alone: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, name: str, word: str, home: str
) -> None:
    """Though there be a folder of that name, which is ``./session`` then."""
    alone.mkdir(word)
    alone.mkdir("below")
    monkeypatch.chdir(home)
    meant = None if word == "recorded" else word
    for place in ("command line", "environment"):
        assert configure(alone, {place: {name: word}})[name] == meant
        if home == ".":
            assert str(configure(alone, {place: {name: f"./{word}"}})[name]).endswith(word)
            assert configure(alone, {place: {name: f"./{word}"}})[name] != meant
    assert configure(alone, {"ini file": {name: word}})[name] == meant
    folder = configure(alone, {"ini file": {name: f"./{word}"}})[name]
    assert folder != meant
    assert Path(str(folder)).resolve() == alone.path / word


def test_a_misspelt_option_is_told(alone: pytest.Pytester) -> None:
    result = alone.runpytest_inprocess("--dsocr-page", "dev-3")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*unrecognized arguments: --dsocr-page*"])
