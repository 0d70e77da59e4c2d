"""PDFs' pages as files: in a folder that only the user can write to, each rendered once."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from pytest_dsocr.pages.page_list import BadPage
from pytest_dsocr.pages.rendering import pages_of_pdf
from tests.contract.test_pdf import pdf_of


@pytest.fixture
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's folder is, in a temporary folder of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp" / f"dsocr-pdf-{os.getuid()}"


def rendered(tmp_path: Path, *colours: str) -> list[Path | BadPage]:
    path = tmp_path / "it.pdf"
    path.write_bytes(pdf_of(*colours))
    return [*pages_of_pdf(path)]


def test_a_page_is_rendered_once_for_its_content_into_a_folder_of_the_users_own(usual: Path, tmp_path: Path) -> None:
    usual.mkdir(mode=0o755)  # others can read it: it is closed to them
    first = rendered(tmp_path, "red", "blue")
    pages = [page for page in first if isinstance(page, Path)]
    assert [page.name for page in pages] == ["it-p001.png", "it-p002.png"]
    assert {page.parent.parent for page in pages} == {usual}
    assert stat.S_IMODE(usual.stat().st_mode) == 0o700
    written = [page.stat().st_mtime_ns for page in pages]
    assert rendered(tmp_path, "red", "blue") == first
    assert [page.stat().st_mtime_ns for page in pages] == written
    assert not {*first} & {*rendered(tmp_path, "green", "blue")}


@pytest.mark.parametrize("how", ["link", "dangling", "file", "others", "another user"])
def test_what_somebody_else_put_in_its_place_is_not_written_to(usual: Path, tmp_path: Path, how: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    if how == "another user" and os.getuid():
        pytest.skip("nobody but root can give a folder away")
    if how in ("link", "dangling"):
        usual.symlink_to(elsewhere)
    if how == "link":
        elsewhere.mkdir()
    elif how == "file":
        usual.write_text("precious")
    elif how == "others":
        usual.mkdir()
        usual.chmod(0o1777)
    elif how == "another user":
        usual.mkdir(mode=0o700)
        os.chown(usual, 12345, 12345)
    [bad] = rendered(tmp_path, "red")
    assert isinstance(bad, BadPage)
    assert f"{usual} is not a folder that you alone can write to" in bad.why
    assert not (usual.is_dir() and [*usual.iterdir()])
    assert elsewhere.exists() is (how == "link")


def test_a_disk_that_does_not_take_them_is_reported(usual: Path, tmp_path: Path) -> None:
    usual.parent.rmdir()
    [bad] = rendered(tmp_path, "white")
    assert isinstance(bad, BadPage)
    assert bad.why.startswith(f"the pages of {tmp_path / 'it.pdf'} cannot be written (")
