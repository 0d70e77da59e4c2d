"""``dsocr new-adapter``: what it writes runs as it is."""

from pathlib import Path

import pytest

from pytest_dsocr.cli.adapters import KINDS
from pytest_dsocr.cli.main import main
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.subjects.loading import load_subject
from pytest_dsocr.subjects.protocol import Setup
from tests.adapters.server import TEXT

OURS = "http://localhost:8000/v1"


def read(spec: str, page: Path) -> str:
    subject = load_subject(spec, Setup("synthetic:tiny"))
    return subject.read(page, prompt="<image>\nFree OCR.", preset=DEFAULT.presets["tiny"], max_new_tokens=3)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_runs(
    kind: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"begun_{kind}{KINDS[kind][0]}"
    assert main(["new-adapter", kind, name]) == 0
    spec = capsys.readouterr().out.strip().partition("dsocr compare --subject=")[2]
    if kind == "http":
        begun = Path(name).read_text()
        assert OURS in begun
        Path(name).write_text(begun.replace(OURS, f"{address}/plain/v1"))
    page = tmp_path / "page.png"
    page.write_bytes(shipped("dev-3")[0].read_bytes())
    page.with_name("page.png.txt").write_text(TEXT)
    if kind == "python":
        assert read(spec, page) == read("session", page)
    else:
        assert read(spec, page) == TEXT


def test_what_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.toml").write_text("mine")
    for kind, name, message in (
        ("cli", "there.toml", "there is a file there.toml already; give another name"),
        ("cli", "mine.py", "mine.py cannot be an adapter of kind cli; give a name that ends in .toml"),
        ("python", "my-ocr.py", "my-ocr.py cannot be imported; give a name such as my_ocr.py"),
        ("http", "absent/it.toml", "absent/it.toml cannot be written (No such file or directory); give another name"),
    ):
        assert main(["new-adapter", kind, name]) == 2
        assert capsys.readouterr().err == f"dsocr: {message}\n"
    assert Path("there.toml").read_text() == "mine"
