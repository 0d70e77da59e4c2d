"""Pages that cannot be read, which fail the run after all others are compared, and hostile file names."""

import os
from pathlib import Path

import pypdfium2
import pytest
from PIL import Image

from pytest_dsocr.pages.named import first_pages
from tests.plugin.conftest import TEST_TEXT, Repository

ASKS = """
    def test_page(dsocr_page):
        pass
"""
STEERING = "\x1b[31mred\x07\x9b2J\u202e"
"""Escape sequences in 7 and 8 bits, a bell, and a mark for writing from right to left."""


@pytest.fixture
def scans(repository: Repository) -> Path:
    """Return a folder with two good pages."""
    folder = repository.pytester.mkdir("scans")
    for name in ("first.png", "last.png"):
        Image.new("RGB", (32, 32)).save(folder / name)
    repository.settle(ini="dsocr_out = out")
    return folder


def spoil(folder: Path) -> int:
    """Add one unreadable page of each kind to ``folder``, and return their number."""
    Image.effect_noise((64, 64), 90).save(folder / "cut.png")
    os.truncate(folder / "cut.png", 900)
    (folder / "folder.png").mkdir()
    os.mkfifo(folder / "pipe.png")
    (folder / "lost.png").symlink_to("nowhere.png")
    (folder / "empty.png").touch()
    (folder / "unreadable.png").symlink_to("/proc/self/mem")  # root neither can read it from its beginning
    return 6


HOLDERS = ("large.pdf", "list.txt", "bare", "twin", "pipe")


def make_holders(pytester: pytest.Pytester) -> None:
    """Make a PDF, a list and folders with an unreadable page, no page, or a page with a name that is taken."""
    document = pypdfium2.PdfDocument.new()
    for inches in (1, 200, 2):  # the second is above Pillow's limit
        document.new_page(72 * inches, 72 * inches)
    document.save(Path("large.pdf"))
    Path("list.txt").write_text("gone.png\n")
    pytester.mkdir("bare")
    Image.new("RGB", (8, 8)).save(pytester.mkdir("twin") / "first.png")
    os.mkfifo("pipe")


@pytest.mark.dsocr_slow
def test_a_bad_page_costs_itself_alone_and_so_does_what_holds_one(repository: Repository, scans: Path) -> None:
    bad = spoil(scans) + len(HOLDERS)
    make_holders(repository.pytester)
    pages = [f"--dsocr-pages={name}" for name in ("scans", *HOLDERS)]
    result = repository.run(TEST_TEXT + ASKS, *pages, "-n", "2", apart=True)
    result.assert_outcomes(passed=8, errors=2 * bad)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "Traceback" not in result.stdout.str()
    found = repository.result()
    assert len({test["why"] for test in found["tests"] if test["fault"]}) == bad
    assert not found["passes"]
    good = ("first", "last", "large-p001", "large-p003")
    assert {case["id"] for case in found["cases"]} == {f"{name}-tiny-markdown" for name in good}


def test_the_first_pages_are_those_that_can_be_read(scans: Path) -> None:
    (scans / "a.png").touch()
    assert first_pages(["scans"], 2) == first_pages(["scans"], 9) == [Path("scans/first.png"), Path("scans/last.png")]


@pytest.fixture
def steering(scans: Path) -> Path:
    """Return a folder of good and bad pages with names that control a terminal or are not text."""
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
    reported = result.stdout.str() + result.stderr.str()
    assert [c for c in reported if not c.isprintable() and c != "\n"] == []
    assert "x1b[31mred" in reported
    pages = {path.name for path in Path("out/pages").glob("*.jpg")}
    assert all(name.isprintable() for name in pages)
    assert len(pages) == 5
    written = Path("out/index.html").read_text(encoding="utf-8")
    assert [c for c in written if not c.isprintable() and c != "\n"] == []
