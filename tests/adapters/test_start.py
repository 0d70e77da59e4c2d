"""``dsocr new-adapter``: what it writes runs as it is, or says what to fill in."""

import re
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.cli.adapters import KINDS, METHODS
from pytest_dsocr.cli.main import main
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.case import make_case
from pytest_dsocr.subjects.loading import load_subject
from pytest_dsocr.subjects.protocol import Setup
from suites.contract.pages import write_page
from tests.adapters.server import TEXT
from tests.held import held
from tests.subjects.seen import compared, held_to, seen

OURS = "http://localhost:8000/v1"


def read(spec: str, page: Path) -> str:
    subject = load_subject(spec, Setup("synthetic:tiny"))
    return subject.read(page, prompt="<image>\nFree OCR.", preset=DEEPSEEK_OCR.presets["tiny"], max_new_tokens=3)


@pytest.mark.parametrize("kind", ["cli", "http"])
def test_what_is_written_runs(
    kind: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"begun_{kind}{KINDS[kind][0]}"
    assert main(["new-adapter", kind, name]) == 0
    said, _, spec = capsys.readouterr().out.strip().partition("dsocr compare --subject=")
    assert "fill in the file, then run:" in said, "this is the file's folder"
    if kind == "http":
        begun = Path(name).read_text()
        assert OURS in begun
        Path(name).write_text(begun.replace(OURS, f"{address}/plain/v1"))
    page = tmp_path / "page.png"
    page.write_bytes(shipped("dev-3")[0].read_bytes())
    page.with_name("page.png.txt").write_text(TEXT)
    assert read(spec, page) == TEXT


PLACE = re.compile(r'raise NotImplementedError\("fill in MyOcr\.(\w+): .*"\)\n +# until then: (.*)')
ADDED = {
    "read": {"text"},
    "inputs": {"input_ids", "images_ori"},
    "vision": {"vision_fusion"},
    "prefill": {"prefill", "prefill_best"},
    "step": {"logits", "tokens"},
}
"""Comparisons that each method adds."""


@pytest.mark.dsocr_slow
@pytest.mark.parametrize("level", METHODS)
def test_what_is_written_in_python_names_what_to_fill_in_and_then_passes(
    level: str, tiny: Engine[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names = [f"{word}_{level.lower()}" for word in ("begun", "filled")]
    assert main(["new-adapter", "python", f"{names[0]}.py", f"--level={level}"]) == 0
    begun = Path(f"{names[0]}.py").read_text(encoding="utf-8")
    methods = [name for name, _ in PLACE.findall(begun)]
    Path(f"{names[1]}.py").write_text(PLACE.sub(r"\2", begun), encoding="utf-8")
    case = make_case(write_page("tiny", tmp_path), "free", "tiny", 2, family=DEEPSEEK_OCR)
    expected = seen(tiny, case)
    unfilled, filled = (held_to(expected, case, f"{name}:MyOcr") for name in names)
    first = next(name for name in ("inputs", *methods) if name in methods)
    assert f"fill in MyOcr.{first}: " in str(unfilled.fault)
    assert not unfilled.passes
    assert filled.passes
    for name, found in ADDED.items():
        assert compared(filled).isdisjoint(found) is (name not in (*methods, "read")), name
    if level == "L3":
        assert held(f"{names[1]}:MyOcr", "invoice_016", 2).passes


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
    assert main(["new-adapter", "cli", "new.toml", "--level=L2"]) == 2
    assert capsys.readouterr().err == "dsocr: --level is for adapters in Python; leave it out for cli\n"
