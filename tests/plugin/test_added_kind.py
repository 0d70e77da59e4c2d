"""A package that adds a kind of subject, as ``docs/extending.md`` shows one."""

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.plugin import option_values
from pytest_dsocr.subjects.loading import GROUP
from tests.markdown import blocks
from tests.plugin.conftest import TEST_TEXT, Repository
from tests.plugin.standin import TEXT

MODULE, *_ = (block for block in blocks("docs/extending.md", "python") if "SavedTexts" in block)
PROJECT, *_ = (block for block in blocks("docs/extending.md", "toml") if GROUP in block)


@pytest.fixture(autouse=True)
def _import_anew() -> Iterator[None]:
    yield
    sys.modules.pop("saved_texts", None)


def install(folder: Path, module: str) -> Path:
    """Return a folder with the package, as an installer unpacks it."""
    source = folder / "source"
    source.mkdir()
    (source / "saved_texts.py").write_text(module, encoding="utf-8")
    (source / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    [built] = WheelBuilder(str(source)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.dsocr_slow
@pytest.mark.parametrize("isolate", [(), ("--dsocr-isolate",)])
def test_its_subject_is_run(
    repository: Repository, tmp_path_factory: pytest.TempPathFactory, isolate: tuple[str, ...]
) -> None:
    repository.pytester.syspathinsert(install(tmp_path_factory.mktemp("installed"), MODULE))
    texts = repository.pytester.mkdir("texts")
    run = ("--dsocr-subject=texts:texts", *isolate)
    for text, outcome in ((TEXT, {"passed": 1}), ("Minuets", {"failed": 1})):
        (texts / "page.txt").write_text(text, encoding="utf-8")
        found = repository.run(TEST_TEXT, *run)
        found.assert_outcomes(**outcome)
    assert "offers L0 text" in found.stdout.str()


@pytest.mark.parametrize(
    ("module", "spec", "message"),
    [
        (MODULE, "texts:nowhere", "'texts:nowhere' names no folder"),
        (MODULE, "text:nowhere", "there is no module text, .*; or, of installed packages, texts:ARGUMENT"),
        (MODULE, "texts", "'texts' names no subject; .*texts:ARGUMENT"),
        ("import nowhere_installed", "texts:.", "saved_texts, the adapter of texts:, cannot be imported .*No module"),
        ("def subject(spec, setup): ...", "texts:.", "lacks LEVEL, OWN_PROCESS, offers; see .*Adapter"),
    ],
)
def test_a_name_or_an_adapter_that_is_wrong_is_refused(
    module: str, spec: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(install(tmp_path, module))
    with pytest.raises(DsocrError, match=message):
        option_values.importable_subject(spec)
