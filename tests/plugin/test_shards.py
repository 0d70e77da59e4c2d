"""``--dsocr-shard``: each page is in one shard, and tests without a page are in the first."""

import shutil
from pathlib import Path

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.named import make_cases
from pytest_dsocr.records.config import Shard
from pytest_dsocr.report.file import Ending
from tests.plugin.conftest import TEST_TEXT, Repository

TESTS = f"""
    import pytest
    {TEST_TEXT}
    def test_page(dsocr_page):
        pass

    @pytest.mark.parametrize("number", [1, 2])
    def test_of_no_page(number, dsocr_config):
        pass
"""
NAMES = ("a", "b", "c", "d", "e")


@pytest.fixture(autouse=True)
def _pages(repository: Repository) -> None:
    """Make five pages, the fourth of them unreadable."""
    Path("scans").mkdir()
    for name in NAMES:
        shutil.copy("page.png", f"scans/{name}.png")
    Path("scans/d.png").unlink()
    Path("scans/d.png").mkdir()


def run(repository: Repository, shard: str, *arguments: str, apart: bool = False) -> list[str]:
    """Return the tests that were run."""
    out = f"out-{shard[0]}"
    options = ("--dsocr-pages=scans", f"--dsocr-shard={shard}", f"--dsocr-out={out}")
    repository.run(TESTS, *options, *arguments, apart=apart)
    return sorted(test["nodeid"].partition("::")[2] for test in repository.result(out)["tests"])


@pytest.mark.dsocr_slow
def test_every_nth_page_is_run_and_the_rest_in_the_first_shard(repository: Repository) -> None:
    first, second = run(repository, "1/2"), run(repository, "2/2")
    of_pages = [*(f"test_page[{name}]" for name in "ace"), *(f"test_text[{name}-tiny-markdown]" for name in "ace")]
    assert first == ["test_of_no_page[1]", "test_of_no_page[2]", *of_pages]
    assert second == ["test_page[b]", "test_page[d.png]", "test_text[b-tiny-markdown]", "test_text[d.png]"]
    assert sorted([*first, *second]) == run(repository, "1/1")
    assert run(repository, "2/2", "-n", "2", apart=True) == second


WITHOUT_PAGE = "shard 6/6 has no page, for there are only 5; make no more shards than pages"


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["", "on a worker"])
def test_a_shard_without_a_page_is_refused(repository: Repository, arguments: tuple[str, ...]) -> None:
    result = repository.run(TESTS, "--dsocr-pages=scans", "--dsocr-shard=6/6", "--dsocr-out=out", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert WITHOUT_PAGE in result.stderr.str()
    assert repository.result()["ended_as"] == Ending.REFUSED
    with pytest.raises(DsocrError, match=WITHOUT_PAGE):
        make_cases(["scans"], ["markdown"], ["tiny"], shard=Shard(6, 6), family=DEEPSEEK_OCR)
