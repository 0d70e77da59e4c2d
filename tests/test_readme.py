"""The README agrees with the code: its example runs as it stands, and a package index can show it."""

from __future__ import annotations

import re

import pytest

from pytest_dsocr.pages.page_list import shipped
from tests.markdown import HOMES, blocks, text_of


def block(language: str, page: str, holding: str) -> str:
    [found] = [text for text in blocks(page, language) if holding in text]
    return found


def test_pictures_and_links_have_absolute_addresses() -> None:
    """A package index shows the page without the checkout around it."""
    targets = re.findall(r"\]\(([^)]+)\)", text_of("README.md"))
    assert targets
    assert [target for target in targets if not target.startswith(HOMES)] == []


@pytest.mark.dsocr_slow
@pytest.mark.usefixtures("warm")
def test_the_example_is_a_subject_and_its_own_test_passes(pytester: pytest.Pytester) -> None:
    example, own_test = block("python", "README.md", "class MyOcr"), block("python", "README.md", "def test_boxes")
    assert example == block("python", "docs/levels-and-protocol.md", "class MyOcr")
    assert own_test == block("python", "docs/fixtures-and-markers.md", "def test_boxes")
    pytester.makepyfile(my_ocr=example, test_boxes=own_test)
    ini = block("toml", "docs/fixtures-and-markers.md", "dsocr_subject")
    [page] = (page for page in shipped("dev-3") if page.stem == "figures_201")  # the one soonest read
    pytester.makepyprojecttoml(ini.replace('["scans/first.png", "scans/second.png"]', f'["{page}"]'))
    result = pytester.runpytest_inprocess()
    result.stdout.fnmatch_lines(["dsocr: subject my_ocr:MyOcr *; offers L0 text", "1 comparison in 1 case: 1 MATCH"])
    result.assert_outcomes(passed=1)
