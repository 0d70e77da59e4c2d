"""PDFs' pages as files: in a folder of the user's own, whatever somebody put in its place, and rendered once."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_dsocr.pages.page_list import BadPage
from pytest_dsocr.pages.rendering import pages_of_pdf, private_folder
from tests.contract.test_pdf import pdf_of

OTHER_USER = 12345


@pytest.fixture
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the user's folder is looked for, in a temporary folder of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    private_folder.cache_clear()
    yield tmp_path / "tmp" / f"dsocr-pdf-{os.getuid()}"
    private_folder.cache_clear()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder of somebody else's choice."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


def rendered(tmp_path: Path, colours: tuple[str, ...] = ("red", "blue")) -> list[Path]:
    path = tmp_path / "it.pdf"
    path.write_bytes(pdf_of(*colours))
    pages = list(pages_of_pdf(path))
    found = [page for page in pages if isinstance(page, Path)]
    assert len(found) == len(pages) == len(colours)
    return found


def is_private(folder: Path) -> bool:
    found = folder.lstat()
    return (stat.S_IMODE(found.st_mode), found.st_uid, folder.is_symlink()) == (0o700, os.getuid(), False)


def test_pages_lie_in_a_folder_of_the_users_own(usual: Path, tmp_path: Path) -> None:
    pages = rendered(tmp_path)
    assert [page.name for page in pages] == ["it-p001.png", "it-p002.png"]
    assert {page.parent.parent for page in pages} == {usual}
    assert is_private(usual)


def test_a_link_in_its_place_is_not_followed(usual: Path, elsewhere: Path, tmp_path: Path) -> None:
    usual.symlink_to(elsewhere)
    pages = rendered(tmp_path)
    assert list(elsewhere.iterdir()) == []
    assert is_private(pages[0].parent.parent)
    assert pages[0].parent.parent.parent == usual.parent


@pytest.mark.parametrize("target", ["nothing", "file"])
def test_neither_is_one_that_leads_to_no_folder(usual: Path, tmp_path: Path, target: str) -> None:
    if target == "file":
        (tmp_path / target).write_text("precious")
    usual.symlink_to(tmp_path / target)
    assert is_private(rendered(tmp_path)[0].parent.parent)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_one_that_others_could_write_to_is_left_alone(usual: Path, tmp_path: Path, mode: int) -> None:
    usual.mkdir()
    usual.chmod(mode)
    pages = rendered(tmp_path)
    assert list(usual.iterdir()) == []
    assert is_private(pages[0].parent.parent)


@pytest.mark.skipif(os.getuid() != 0, reason="nobody but root can give a folder away")
def test_one_of_another_user_is_left_alone(usual: Path, tmp_path: Path) -> None:
    usual.mkdir(mode=0o700)
    os.chown(usual, OTHER_USER, OTHER_USER)
    pages = rendered(tmp_path)
    assert list(usual.iterdir()) == []
    assert is_private(pages[0].parent.parent)


def test_one_that_others_could_only_read_is_closed_to_them(usual: Path, tmp_path: Path) -> None:
    usual.mkdir(mode=0o755)
    assert rendered(tmp_path)[0].parent.parent == usual
    assert is_private(usual)


def test_a_fresh_one_goes_with_its_process(elsewhere: Path, tmp_path: Path) -> None:
    (tmp_path / f"dsocr-pdf-{os.getuid()}").symlink_to(elsewhere)
    code = "from pytest_dsocr.pages.rendering import private_folder; print(private_folder()); print(private_folder())"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    [folder, again] = ran.stdout.split()
    assert folder == again
    assert not Path(folder).exists()


@pytest.mark.usefixtures("usual")
def test_a_page_is_rendered_once_for_its_content(tmp_path: Path) -> None:
    first = rendered(tmp_path)
    written = [page.stat().st_mtime_ns for page in first]
    assert [page.stat().st_mtime_ns for page in rendered(tmp_path)] == written
    other = rendered(tmp_path, ("green", "blue"))
    assert not set(first) & set(other)


def test_a_disk_that_does_not_take_them_is_told(usual: Path, tmp_path: Path) -> None:
    usual.parent.rmdir()
    path = tmp_path / "it.pdf"
    path.write_bytes(pdf_of("white"))
    [bad] = pages_of_pdf(path)
    assert isinstance(bad, BadPage)
    assert bad.why.startswith(f"the pages of {path} cannot be written (")
