"""The command line: commands, options, cases, refusals, and ``dsocr run``."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pypdfium2
import pytest
from syrupy.assertion import SnapshotAssertion

import pytest_dsocr
from pytest_dsocr.base.files import unseal
from pytest_dsocr.cli.main import COMMANDS, main, parser
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.markup import parse, to_pixels
from pytest_dsocr.cost.model import PageCost
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.places import MINI_IS_FOR, architecture_of
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.page_list import shipped
from suites.contract.pages import write_page
from tests.contract.test_pdf import pdf_of
from tests.processes import finished

ARGUMENTS: Mapping[str, Sequence[str]] = {
    "run": [],
    "compare": [],
    "port": [],
    "receipt": ["a"],
    "diff": ["a", "b"],
    "demo": [],
    "doctor": [],
    "bench": ["a", "b"],
    "load": ["http://a"],
    "history": ["a"],
    "scoreboard": ["a"],
    "faults": [],
    "watch-vendor": ["a"],
    "new-adapter": ["cli", "a"],
    "dump": ["a"],
    "export": ["mini", "--to=hf", "a"],
    "vendor setup": ["a"],
    "vendor inspect": ["a"],
    "vendor record": ["a", "dev-3"],
}
"""Fewest arguments that each command needs."""
QUICK = ("--preset=tiny", "--max-new-tokens=1")


def test_the_commands_and_their_options_are_these(snapshot: SnapshotAssertion) -> None:
    """Pin each option with its default, which users rely on."""
    assert ARGUMENTS.keys() == COMMANDS.keys()
    assert {name: vars(parser().parse_args([*name.split(), *words])) for name, words in ARGUMENTS.items()} == snapshot


def test_the_version_is_reported_and_windows_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"dsocr {pytest_dsocr.__version__}\n"
    with pytest.raises(SystemExit):
        main(["run", "--x\n::stop-commands::y"])
    assert "\n::" not in capsys.readouterr().err
    monkeypatch.setattr("sys.platform", "win32")
    assert main(["run"]) == 2
    refused = "pytest-dsocr does not run on Windows; run it on Linux or macOS, or in WSL"
    assert capsys.readouterr().err == f"dsocr: {refused}\n"


REFUSED = {
    "run absent.png": (10, "there is no page absent.png"),
    "run invoice_017": (10, "did you mean invoice_016?"),
    "bench . . --page=invoice_017": (10, "did you mean invoice_016?"),
    "compare invoice_017": (10, "did you mean invoice_016?"),
    "faults PRJ-W1 invoice_017": (10, "did you mean invoice_016?"),
    "run empty": (10, "the folder empty holds no images"),
    "run notes.md": (10, "notes.md cannot be read as an image"),
    "run --out=/proc/nope": (2, "/proc/nope cannot be made"),
    "run --max-new-tokens=0": (2, "'0' is not a number of tokens"),
    "run --preset=nope": (2, "there is no preset 'nope'"),
    "run --dtype=fp8": (2, "'fp8' is not one of float32"),
    "run --checkpoint=nope": (10, "'nope' is not a checkpoint"),
    "compare empty": (10, "the folder empty holds no images"),
    "compare notes.md --pages=empty": (10, "notes.md cannot be read as an image"),
    "bench . . --max-new-tokens=0": (3, "'0' is not a number of tokens"),
    "bench . . --out=/proc/nope": (3, "/proc/nope cannot be written (No such file or directory)"),
    "bench . . --out=empty": (3, "'empty' is a folder; give a file"),
    "bench . . --markdown=empty": (3, "'empty' is a folder; give a file"),
    "bench . . --bencher=empty": (3, "'empty' is a folder; give a file"),
    "vendor record code empty --presets=nope": (2, "there is no preset 'nope'"),
}
"""Command lines that are refused at once, with the exit status and a part of the message."""
IN_ONE = """
import sys
from pytest_dsocr.cli.main import main
sys.modules |= dict.fromkeys(("torch", "pytest_dsocr.engine.engine"))  # not to be imported
for command in sys.argv[1:]:
    print(f"{command}: {main(command.split())}", file=sys.stderr)
"""


def test_bad_input_is_one_sentence_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.md").write_text("no image")
    done = finished(sys.executable, "-c", IN_ONE, *REFUSED, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    for k, (refused, (status, why)) in enumerate(REFUSED.items()):
        assert said[2 * k].startswith("dsocr: ")
        assert why in said[2 * k]
        assert said[2 * k + 1] == f"{refused}: {status}"


@pytest.mark.dsocr_slow
def test_a_page_is_read_in_a_process_of_its_own_whose_reader_may_have_seen_enough(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest_dsocr", "run", "--max-new-tokens=8", "--out", str(tmp_path)]
    done = finished(*command)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[2].endswith("2 x 2 crops and the whole page, 702 prompt tokens, 693 of them image")
    assert "output      8 tokens, ended by length" in lines
    work = Workload(load_image(shipped("dev-3")[0]).size, DEEPSEEK_OCR.preset("gundam"), 702 - 693, 8, "float32")
    assert f"cost        {PageCost.of(architecture_of('mini'), work)}" in lines
    assert {"result.mmd", "result_with_boxes.jpg"} <= {path.name for path in tmp_path.iterdir()}
    noticed = [line.split()[2:4] for line in lines if line.startswith("noticed ")]
    assert noticed == [["output", "ended"], ["box", "was"]], "the limit of tokens leaves no room for a box"
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run([*command, *QUICK], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_info_lists_the_boxes_of_a_page_with_the_text_behind_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--preset=tiny", "--max-new-tokens=60", f"--out={tmp_path}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if "box was read" in line]
    info = unseal((tmp_path / "info.json").read_bytes())
    page = load_image(shipped("dev-3")[0])
    assert info["page"] == {"width": page.width, "height": page.height}
    spans = parse(info["text"], DEEPSEEK_OCR.form).spans
    assert [(one["label"], one["text"]) for one in info["boxes"]] == [(one.label, one.text) for one in spans]
    for box, span in zip(info["boxes"], spans, strict=True):
        x1, y1, x2, y2 = to_pixels(span.boxes[0], *page.size)
        assert (box["x"], box["y"], box["x"] + box["w"], box["y"] + box["h"]) == (x1, y1, x2, y2)
    assert len(spans) > 1


def test_mini_says_that_it_invents_text_of_pages_that_are_not_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [copy, other] = (tmp_path / name for name in ("copy.png", "other.png"))
    copy.write_bytes(shipped("dev-3")[2].read_bytes())
    write_page("exactly_640", tmp_path).rename(other)
    warned = {}
    for page, checkpoint in ((copy, "mini"), (other, "mini"), (other, "synthetic:tiny")):
        assert main(["run", str(page), *QUICK, f"--checkpoint={checkpoint}", f"--out={tmp_path / 'out'}"]) == 0
        warned[page.stem, checkpoint] = MINI_IS_FOR in capsys.readouterr().out
    assert [key for key, is_warned in warned.items() if is_warned] == [("other", "mini")]


@pytest.fixture
def pdf(tmp_path: Path) -> Path:
    """Return a PDF of two pages."""
    (tmp_path / "it.pdf").write_bytes(pdf_of("red", "blue"))
    return tmp_path / "it.pdf"


def test_a_pdf_is_read_page_by_page_and_one_that_cannot_be_rendered_costs_itself(
    pdf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["run", str(pdf), *QUICK, f"--out={out}"]) == 0
    pages = [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("page  ")]
    assert pages == ["it-p001.png,", "it-p002.png,"]
    assert sorted(path.parent.name for path in out.glob("*/result.mmd")) == ["it-p001", "it-p002"]
    document = pypdfium2.PdfDocument.new()
    for side_inches in (1, 200):  # the second is larger than Pillow's limit
        document.new_page(side_inches * 72, side_inches * 72)
    document.save(pdf)
    assert main(["run", str(pdf), *QUICK, f"--out={tmp_path / 'other'}"]) == 10
    said = capsys.readouterr()
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["it-p001"]
    assert re.search(r"^left out    page 2 of .*it\.pdf would be", said.out, re.MULTILINE)
    assert said.err.startswith("dsocr: left out 1 page of ")


def test_the_pages_of_a_pdf_are_read_in_one_prompt(
    pdf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    asked = ["--prompt=pages", "--preset=base", "--checkpoint=unlimited_ocr:synthetic:tiny", "--max-new-tokens=2"]
    assert main(["run", str(pdf), *asked, f"--out={out}"]) == 0
    said = capsys.readouterr().out
    assert "page        it, 288 x 144, 288 x 144 px" in said
    assert f"{2 * 273} of them image" in said
    assert {path.name for path in out.iterdir()} == {"result.md", "info.json"}


def test_one_page_of_a_pdf_is_read_and_one_that_there_is_not_refused(
    pdf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["run", str(pdf), "--page=2", *QUICK, f"--out={tmp_path / 'out'}"]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["it-p002"]
    capsys.readouterr()
    for page, number, why in (
        (pdf, 3, "it.pdf has 2 pages, and no page 3; give --page=1 to --page=2"),
        (pdf, 0, "and no page 0"),
        (shipped("dev-3")[0], 1, "--page is for PDFs"),
    ):
        assert main(["run", str(page), f"--page={number}"]) == 2
        assert why in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    assert main(["run", str(pdf)]) == 2
    assert "reading a PDF needs pypdfium2" in capsys.readouterr().err
