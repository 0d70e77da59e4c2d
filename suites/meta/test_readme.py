"""What the README says is so: its example is run as it stands, and its tables hold every option and every fixture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_dsocr.plugin import fixtures
from pytest_dsocr.plugin.markers import MARKERS
from pytest_dsocr.plugin.options import OPTIONS, Option

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)


def block(language: str, holding: str) -> str:
    [found] = [text for of, text in BLOCKS if of == language and holding in text]
    return str(found)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.flag)
def test_every_option_has_its_row(option: Option) -> None:
    assert re.search(rf"^\| `{option.flag}` \|", README, re.MULTILINE)


def test_there_are_no_rows_of_options_that_are_gone() -> None:
    assert set(re.findall(r"^\| `(--dsocr-[\w-]+)` \|", README, re.MULTILINE)) == {option.flag for option in OPTIONS}


def test_every_fixture_has_its_row() -> None:
    public = {name for name in vars(fixtures) if name.startswith("dsocr_")}
    assert set(re.findall(r"^\| `(dsocr_\w+)` \|", README, re.MULTILINE)) == public


@pytest.mark.parametrize("name", MARKERS)
def test_every_marker_is_named(name: str) -> None:
    assert re.search(rf"Markers: .*`{name}\b", README)


@pytest.mark.dsocr_slow
@pytest.mark.usefixtures("warm")
def test_the_example_is_a_subject_and_its_own_test_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(my_ocr=block("python", "class MyOcr"), test_boxes=block("python", "def test_boxes"))
    ini = block("toml", "dsocr_subject").replace('["scans/first.png", "scans/second.png"]', '["dev-3"]')
    pytester.makepyprojecttoml(ini)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["dsocr: subject my_ocr:MyOcr *; offers L0 text", "3 comparisons in 3 cases: 3 MATCH"])
    result.assert_outcomes(passed=3)
