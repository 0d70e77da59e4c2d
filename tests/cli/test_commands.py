"""From the command line to cases: options, pages in folders, and what is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

import pytest
from PIL import Image

from pytest_dsocr.cli.main import main, parser
from pytest_dsocr.contract.prompt import PROMPTS
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.pages.named import pages_in
from pytest_dsocr.pages.page_list import BadPage
from tests.cli.cases import cases_of

FILES = ("b.PNG", "a.jpg", "c.tif", "notes.md", "d.webp", "e.pdf", "f.jpeg", "g.bmp", "h.gif", "i.tiff")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pages").mkdir()
    for name in FILES:
        Image.new("RGB", (4, 4)).save(tmp_path / "pages" / name, "PNG")
    return tmp_path / "pages"


def options(*arguments: str | Path) -> Namespace:
    return parser().parse_args([str(argument) for argument in arguments])


def names(pages: Iterable[Path | BadPage]) -> list[str]:
    return [page.name for page in pages if isinstance(page, Path)]


def test_a_folder_stands_for_its_images_by_name(folder: Path) -> None:
    images = ["a.jpg", "b.PNG", "c.tif", "d.webp", "f.jpeg", "g.bmp", "h.gif", "i.tiff"]
    assert names(pages_in([folder])) == images


def test_files_are_taken_as_they_are_named_and_in_that_order(folder: Path) -> None:
    named = [folder / "notes.md", folder / "c.tif"]
    assert list(pages_in(named)) == named
    assert names(pages_in([folder / "g.bmp", folder]))[:3] == ["g.bmp", "a.jpg", "b.PNG"]


def test_a_folder_without_images_is_refused(folder: Path) -> None:
    for name in FILES:
        if name != "notes.md":
            (folder / name).unlink()
    [bad] = pages_in([folder])
    assert bad == BadPage(folder, f"the folder {folder} holds no images; give one that does, or image files")
    with pytest.raises(DsocrError, match="holds no images"):
        cases_of(options("vendor", "record", "code", folder))


def test_cases_are_every_page_in_every_preset_with_every_prompt(folder: Path) -> None:
    pages = (folder / "g.bmp", folder / "a.jpg")
    asked = options(
        "vendor", "record", "code", *pages, "--presets", "tiny", "base", "--prompts", "free", "<image>What?"
    )
    cases = cases_of(asked)
    assert [(case.page, case.preset.name, case.prompt) for case in cases] == [
        (page, preset, prompt)
        for page in pages
        for preset in ("tiny", "base")
        for prompt in (PROMPTS["free"], "<image>What?")
    ]
    assert {case.max_new_tokens for case in cases} == {8192}


def test_a_case_named_twice_is_one(folder: Path) -> None:
    asked = options("vendor", "record", "code", folder / "a.jpg", folder, folder / "a.jpg", "--presets", "tiny", "tiny")
    asked.prompts = ["free", PROMPTS["free"]]
    pages = [case.page.name for case in cases_of(asked)]
    assert pages == ["a.jpg", "b.PNG", "c.tif", "d.webp", "f.jpeg", "g.bmp", "h.gif", "i.tiff"]


def test_two_pages_of_one_name_are_refused(folder: Path, tmp_path: Path) -> None:
    """Their files and lines in the report would be one another's."""
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(folder / "a.jpg", other)
    with pytest.raises(DsocrError, match=r"a\.jpg and .*a\.jpg are both a-gundam-markdown; give pages of different"):
        cases_of(options("vendor", "record", "code", folder / "a.jpg", other))


def test_hidden_files_are_no_pages(folder: Path) -> None:
    shutil.copy(folder / "a.jpg", folder / "._a.jpg")
    assert "._a.jpg" not in names(pages_in([folder]))


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    code = "import sys; from pytest_dsocr.cli.main import main; sys.exit(main(['run', '--max-new-tokens', '1']))"
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_the_ceiling_is_passed_on(folder: Path) -> None:
    asked = options("vendor", "record", "code", folder / "a.jpg", "--max-new-tokens", "7")
    assert [case.max_new_tokens for case in cases_of(asked)] == [7]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["a.jpg", "--presets", "huge"],
            "there is no preset 'huge'; give one of tiny, small, base, large, gundam, or a Preset of your own",
        ),
        (["absent.png"], r"there is no page .*absent\.png; give an image, .*"),
        (["a.jpg", "--max-new-tokens", "0"], "max_new_tokens=0 leaves nothing to decode; give at least 1"),
    ],
)
def test_bad_cases_are_refused(arguments: list[str], message: str, folder: Path) -> None:
    page, *rest = arguments
    with pytest.raises(DsocrError, match=f"^{message}$"):
        cases_of(options("vendor", "record", "code", folder / page, *rest))


def test_a_recording_is_made_of_the_papers_preset_and_prompt_unless_told(folder: Path) -> None:
    [case] = cases_of(options("vendor", "record", "code", folder / "a.jpg"))
    assert case.id == "a-gundam-markdown"


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["run"], "run"),
        (["compare", "p"], "compare"),
        (["bench", "a", "b"], "bench"),
        (["cost", "p"], "cost"),
        (["history", "p"], "history"),
        (["vendor", "setup", "v"], "vendor setup"),
        (["vendor", "inspect", "v"], "vendor inspect"),
        (["vendor", "record", "v", "p"], "vendor record"),
    ],
)
def test_every_command_has_its_module_and_says_what_it_is_for(
    arguments: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert options(*arguments).command == command
    words = [word for word in arguments if len(word) > 1]
    with pytest.raises(SystemExit) as left:
        parser().parse_args([*words, "--help"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: dsocr {' '.join(words)}")


def test_windows_is_refused_in_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    assert main(["run"]) == 2
    told = "dsocr: pytest-dsocr does not run on Windows; run it on Linux or macOS, or in WSL\n"
    assert capsys.readouterr() == ("", told)


@pytest.mark.parametrize("arguments", [[], ["vendor"], ["vendor", "record", "v"], ["read"]])
def test_what_is_left_out_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert "usage: dsocr" in capsys.readouterr().err
