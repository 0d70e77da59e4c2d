"""A page that cannot be had: named, the others compared, the run failed at the end; and names that would steer."""

from __future__ import annotations

import html
import json
import os
from pathlib import Path

import pypdfium2
import pytest
from PIL import Image

from pytest_dsocr.pages.named import first_pages
from tests.contract.test_pdf import locked_pdf, pdf_of
from tests.plugin.conftest import TEST_TEXT, Repository

UNREADABLE = "/proc/self/mem"
"""A file that nobody can read from its beginning, root neither."""
ASKS = """
    def test_case(dsocr_case): pass
    def test_page(dsocr_page): pass
"""
STEERING = "\x1b[31mred\x07\x9b2J\u202e"
"""Escape sequences in 7 and in 8 bits, a bell, and what turns the direction of writing."""


@pytest.fixture
def scans(repository: Repository) -> Path:
    """A folder with two good pages, which the ini file names."""
    folder = repository.pytester.mkdir("scans")
    for name in ("first.png", "last.png"):
        Image.new("RGB", (32, 32)).save(folder / name)
    repository.settle(ini="dsocr_out = out")
    return folder


def whole() -> bytes:
    page = Path("whole.png")
    Image.effect_noise((64, 64), 90).save(page)
    return page.read_bytes()


def spoil(folder: Path) -> None:
    """Put pages into ``folder`` that cannot be had, one of each kind."""
    (folder / "folder.png").mkdir()
    os.mkfifo(folder / "pipe.png")
    (folder / "lost.png").symlink_to("nowhere.png")
    (folder / "empty.png").touch()
    (folder / "text.png").write_text("no image")
    (folder / "cut.png").write_bytes(whole()[:-500])
    (folder / "unreadable.png").symlink_to(UNREADABLE)


SPOILT = (
    "scans/folder.png is a folder with the name of an image; take it away, or name it as a folder of pages",
    "scans/pipe.png is no file that can be opened; take it away, or mend it",
    "scans/lost.png is no file that can be opened; take it away, or mend it",
    "scans/empty.png cannot be read as an image (UnidentifiedImageError(",
    "scans/text.png cannot be read as an image (UnidentifiedImageError(",
    "scans/cut.png cannot be read as an image (OSError(",
    "scans/unreadable.png cannot be read (",
)


def test_a_bad_page_costs_itself_alone(repository: Repository, scans: Path) -> None:
    spoil(scans)
    result = repository.run(TEST_TEXT, "--dsocr-pages=scans", "--junitxml=junit.xml", "-n", "2", apart=True)
    result.assert_outcomes(passed=2, errors=len(SPOILT))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    output = result.stdout.str()
    assert "Traceback" not in output
    assert "subject's" not in output
    junit = html.unescape(Path("junit.xml").read_text(encoding="utf-8"))
    found = json.loads(Path("out/dsocr.json").read_text(encoding="utf-8"))
    faults = [fault["why"] for fault in found["faults"]]
    for told in SPOILT:
        assert any(line.startswith(told) for line in result.outlines), told
        assert told in junit
        assert [why for why in faults if why.startswith(told)], told
    assert not found["passes"]
    assert {case["id"] for case in found["cases"]} == {"first-tiny-markdown", "last-tiny-markdown"}


HOLDERS = {
    "locked.pdf": "locked.pdf cannot be read as a PDF (*assword*); give a whole one, with pages and *",
    "broken.pdf": "broken.pdf cannot be read as a PDF (*",
    "large.pdf": "page 2 of large.pdf would be 28800 x 28800 px, *",
    "list.txt": "line 1 of list.txt names gone.png, which is no file; correct the line, or put it there",
    "bare": "the folder bare holds no images; give one that does, or image files",
    "twin": "scans/first.png and twin/first.png are both first-tiny-markdown; give pages of different names",
    "pipe": "pipe is no file that can be opened; take it away, or mend it",
}


def pdf_with_a_large_page(path: Path) -> None:
    """Write three pages, of which the second is above Pillow's limit."""
    document = pypdfium2.PdfDocument.new()
    for inches in (1, 200, 2):
        document.new_page(72 * inches, 72 * inches)
    document.save(path)


@pytest.mark.usefixtures("scans")
def test_what_holds_a_bad_page_costs_no_others(repository: Repository, pytester: pytest.Pytester) -> None:
    Path("locked.pdf").write_bytes(locked_pdf())
    Path("broken.pdf").write_bytes(pdf_of("white")[:200])
    pdf_with_a_large_page(Path("large.pdf"))
    Path("list.txt").write_text("gone.png\n")
    pytester.mkdir("bare")
    Image.new("RGB", (8, 8)).save(pytester.mkdir("twin") / "first.png")
    os.mkfifo("pipe")
    result = repository.run(ASKS, "--dsocr-pages=scans", *(f"--dsocr-pages={name}" for name in HOLDERS), "-v")
    result.assert_outcomes(passed=8, errors=2 * len(HOLDERS))
    result.stdout.fnmatch_lines_random([*HOLDERS.values(), "*::test_page[[]large-p003[]] PASSED*"])


def test_the_first_pages_are_those_that_can_be_read(scans: Path) -> None:
    (scans / "a.png").touch()
    assert first_pages(["scans"], 2) == first_pages(["scans"], 9) == [Path("scans/first.png"), Path("scans/last.png")]


@pytest.fixture
def steering(scans: Path) -> Path:
    """Pages of names that would steer a terminal, or are no text at all; good and bad."""
    page = (scans / "first.png").read_bytes()
    for name in (f"{STEERING}.png", "two\nlines.png"):
        (scans / name).write_bytes(page)
    Path(os.fsdecode(os.fsencode(scans) + b"/not\xfftext.png")).write_bytes(page)
    (scans / f"{STEERING}-bad.png").mkdir()
    (scans / f"{STEERING}-cut.png").touch()
    return scans


@pytest.mark.parametrize("subject", ["Misreader", "Broken"])
def test_names_cannot_steer_the_terminal(repository: Repository, steering: Path, subject: str) -> None:
    pages_named = ("--dsocr-pages=scans", f"--dsocr-pages=scans/{STEERING}.png")
    sides = (f"--dsocr-subject=standin:{subject}", "--dsocr-out=out")
    result = repository.run(TEST_TEXT, *pages_named, *sides, "--color=no", "-v")
    result.assert_outcomes(failed=5, errors=2)
    told = result.stdout.str() + result.stderr.str()
    assert [c for c in told if not c.isprintable() and c != "\n"] == []
    assert "x1b[31mred" in told
    pages = {path.name for path in Path("out/pages").glob("*.jpg")}
    assert all(name.isprintable() for name in pages)
    assert len(pages) == 5
    written = Path("out/index.html").read_text(encoding="utf-8")
    assert [c for c in written if not c.isprintable() and c != "\n"] == []
