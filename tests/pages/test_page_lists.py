"""Pages by list files and by the names of shipped subsets; PDFs' pages as files, each rendered once."""

import hashlib
import os
import stat
import tempfile
from itertools import product
from pathlib import Path

import pytest
from PIL import Image

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.cli.main import parser
from pytest_dsocr.cli.vendor_pages import found_by
from pytest_dsocr.contract.image import files_of
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.named import make_cases, pages_in
from pytest_dsocr.pages.page_list import PAGES, SUBSETS, BadPage, page_named, read_list, shipped
from pytest_dsocr.pages.rendering import pages_of_pdf
from pytest_dsocr.records.case import Case, make_case
from tests.contract.test_pdf import pdf_of

IMAGES = ("a.jpg", "b.PNG", "c.tif", "d.webp", "f.jpeg", "g.bmp", "h.gif", "i.tiff")
SHA256 = "5446d4716dc83e250ad4fd1a0d2b5e982ad557714bec90fb13a97a7f0a79b84b"
"""Hash of the names and bytes of all shipped pages, truths and lists, which the recordings depend on."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pages").mkdir()
    for name in ("a.png", "b.jpg", "c d.png", "#1.png", "café.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / "pages" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(text: str | bytes, name: str = "pages.txt") -> Path:
    path = Path(name)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_folder_stands_for_its_images_by_name_and_files_as_they_are_named(tmp_path: Path) -> None:
    for name in (*IMAGES[::-1], "._a.jpg", "notes.md", "e.pdf"):
        Image.new("RGB", (4, 4)).save(tmp_path / name, "PNG")
    images = [tmp_path / name for name in IMAGES]
    assert list(pages_in([tmp_path])) == images
    named = [tmp_path / "notes.md", tmp_path / "c.tif"]
    assert list(pages_in([*named, tmp_path])) == [*named, *images]
    for image in (*images, tmp_path / "._a.jpg"):
        image.unlink()
    why = f"the folder {tmp_path} holds no images; give one that does, or image files"
    assert list(pages_in([tmp_path])) == [BadPage(tmp_path, why)]


@pytest.mark.usefixtures("folder")
def test_cases_are_every_page_in_every_preset_with_every_prompt_once() -> None:
    """Make the cases that ``dsocr vendor record`` records."""

    def recorded(*arguments: str) -> tuple[Case, ...]:
        return found_by(parser().parse_args(["vendor", "record", "code", *arguments])).good

    pages, prompts, free = ("pages/b.jpg", "pages/a.png"), ("free", "<image>What?"), DEEPSEEK_OCR.prompts["free"]
    cases = recorded(*pages, "--presets", "tiny", "base", "--prompts", *prompts)
    expected = product(map(Path, pages), ("tiny", "base"), (free, "<image>What?"))
    assert [(case.page, case.preset.name, case.prompt) for case in cases] == [*expected]
    assert {case.max_new_tokens for case in cases} == {8192}
    twice = recorded(pages[1], "pages", pages[1], "--presets", "tiny", "tiny", "--prompts", "free", free)
    assert [case.page.name for case in twice] == ["a.png", "#1.png", "b.jpg", "c d.png", "café.png"]
    [case] = recorded(pages[1], "--max-new-tokens", "7")
    assert (case.id, case.max_new_tokens) == ("a-gundam-markdown", 7)
    with pytest.raises(DsocrError, match=r"^there is no page absent\.png; give an image, "):
        recorded("absent.png")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "text",
    [
        "pages/b.jpg\npages/c d.png\n",
        "pages/b.jpg\r\npages/c d.png",
        "# two pages\n\n  pages/b.jpg  \n\t\n  # the other\npages/c d.png\n",
        "\ufeffpages/b.jpg\npages/c d.png",
    ],
)
def test_a_list_is_a_path_a_line_with_comments(text: str) -> None:
    assert read_list(written(text)) == [Path("pages/b.jpg"), Path("pages/c d.png")]
    assert read_list(written("pages/#1.png\npages/café.png")) == [Path("pages/#1.png"), Path("pages/café.png")]


def test_lists_folders_and_files_stand_beside_each_other_with_paths_relative_to_the_list(folder: Path) -> None:
    (folder / "lists").mkdir()
    path = written(f"../pages/a.png\n{folder / 'pages' / 'b.jpg'}\n", "lists/two.LST")
    named = [*pages_in([Path("pages/c d.png"), path, Path("pages/a.png")])]
    listed = [Path("lists/../pages/a.png"), folder / "pages" / "b.jpg"]
    assert named == [Path("pages/c d.png"), *listed, Path("pages/a.png")]


@pytest.mark.usefixtures("folder")
def test_a_list_that_cannot_be_read_or_names_nothing_is_refused() -> None:
    for text in ("", "# none\n\n"):
        with pytest.raises(DsocrError, match=r"^the list pages\.txt names no pages; write the path of one"):
            list(pages_in([written(text)]))
    with pytest.raises(DsocrError, match=r"^absent\.txt cannot be read \(No such file.*\); give a text file"):
        list(pages_in([Path("absent.txt")]))
    with pytest.raises(DsocrError, match=r"^pages\.txt is not text in UTF-8 \(.*\); give a text file"):
        list(pages_in([written(Image.new("L", (300, 300), 255).tobytes())]))


@pytest.mark.usefixtures("folder")
def test_a_line_that_names_no_file_is_a_bad_page_among_the_good_as_is_the_second_of_one_name() -> None:
    message = "line {} of pages.txt names {}, which is no file; correct the line, or put it there"
    found = list(pages_in([written("# one\npages/a.png\n\npages/z.png\npages\nwith\0zero.png\npages/b.jpg")]))
    assert found == [
        Path("pages/a.png"),
        BadPage(Path("pages/z.png"), message.format(4, "pages/z.png")),
        BadPage(Path("pages"), message.format(5, "pages")),
        BadPage(Path("with\0zero.png"), message.format(6, "with\0zero.png")),
        Path("pages/b.jpg"),
    ]
    Path("others").mkdir()
    Image.new("RGB", (4, 4)).save("others/a.png")
    [bad] = make_cases([written("pages/a.png\nothers/a.png")], ["markdown"], ["gundam"], family=DEEPSEEK_OCR).bad
    assert bad.why.startswith("pages/a.png and others/a.png are both a-gundam-markdown; give pages of")


@pytest.mark.usefixtures("folder")
def test_a_subset_and_a_shipped_page_are_named_like_a_page_and_a_file_or_folder_of_the_name_wins() -> None:
    both = make_cases(["dev-3", "dev-20", "typeset"], ["markdown"], ["gundam"], family=DEEPSEEK_OCR).good
    assert [case.page for case in both] == [
        *shipped("dev-3"),
        *(page for page in (*shipped("dev-20"), *shipped("typeset")) if page not in shipped("dev-3")),
    ]
    Image.new("RGB", (4, 4)).save("dev-3", "PNG")
    assert list(pages_in([Path("dev-3")])) == [Path("dev-3")]
    [page] = pages_in(["invoice_016"])
    assert page == page_named("invoice_016") == PAGES / "generated/invoice_016.png"
    Path("dev-3").rename("invoice_016")
    assert list(pages_in(["invoice_016"])) == [Path("invoice_016")]
    Path("pages").rename("typeset")
    assert Path("typeset/a.png") in list(pages_in([Path("typeset")]))


def test_what_is_no_page_and_no_subset_is_refused_with_what_there_is() -> None:
    with pytest.raises(DsocrError) as caught:
        list(pages_in([Path("dev-4")]))
    assert str(caught.value) == (
        "there is no page dev-4; give an image, a folder of images, a PDF, a list file (.lst, .txt), "
        "a shipped page such as invoice_016, or a subset of these (dev-3, dev-20, typeset, all); did you mean dev-3?"
    )


def test_the_bytes_of_shipped_pages_are_those_that_were_recorded() -> None:
    found = hashlib.sha256()
    for path in sorted(path for path in PAGES.rglob("*") if path.suffix in (".png", ".json", ".txt")):
        found.update(path.relative_to(PAGES).as_posix().encode() + path.read_bytes())
    assert found.hexdigest() == SHA256


def test_subsets_are_what_their_names_say() -> None:
    assert {name: len(shipped(name)) for name in SUBSETS} == {"dev-3": 3, "dev-20": 20, "typeset": 12, "all": 34}
    assert {*shipped("dev-3")} < {*shipped("dev-20")} < {*shipped("all")}


@pytest.fixture
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's default folder, in a temporary folder."""
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
    assert {page.parents[2] for page in pages} == {usual}
    assert stat.S_IMODE(usual.stat().st_mode) == 0o700
    written = [page.stat().st_mtime_ns for page in pages]
    assert rendered(tmp_path, "red", "blue") == first
    assert [page.stat().st_mtime_ns for page in pages] == written
    assert not {*first} & {*rendered(tmp_path, "green", "blue")}


@pytest.mark.usefixtures("usual")
def test_with_its_familys_prompt_a_folder_or_a_pdf_is_one_case(folder: Path) -> None:
    pages, family = folder / "pages", MODELS["unlimited_ocr"]
    document = folder / "it.pdf"
    document.write_bytes(pdf_of("red", "blue"))
    together = make_cases([pages, document], ["pages"], ["base"], family=family)
    assert [case.id for case in together.good] == ["pages-base-pages", "it-base-pages"]
    assert files_of(together.good[1].page) == [page for page in pages_of_pdf(document) if isinstance(page, Path)]
    hashes = {case.page_sha256 for case in together.good}
    (pages / "a.png").rename(pages / "z.png")  # of other size than the others: another order is another case
    Image.new("RGB", (5, 4)).save(pages / "z.png")
    assert len(hashes | {make_case(pages, "pages", "base", family=family).page_sha256}) == 3
    both = make_cases([pages], ["pages", "markdown"], ["base"], family=family)
    assert len(both.good) == 5 + 1
    assert "pages" not in {
        case.page.name for case in make_cases([pages], ["pages"], ["base"], family=DEEPSEEK_OCR).good
    }
    with pytest.raises(DsocrError, match="several pages in one prompt, and gundam cuts pages"):
        make_cases([pages], ["pages"], ["gundam"], family=family)


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
