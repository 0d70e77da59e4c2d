"""The command line as a user has it, in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pypdfium2
import pytest

import pytest_dsocr
from pytest_dsocr.cli.main import main
from pytest_dsocr.engine.places import MINI_IS_FOR
from pytest_dsocr.pages.page_list import shipped
from suites.contract.pages import write_page
from tests.contract.test_pdf import pdf_of

QUICK = ("--preset=tiny", "--max-new-tokens=1")


def test_the_command_line_reads_its_drawn_page(tmp_path: Path) -> None:
    done = _run("run", "--max-new-tokens", "8", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[2].endswith("2 x 2 crops and the whole page, 702 prompt tokens, 693 of them image")
    assert "output      8 tokens, ended by length" in lines
    assert {"result.mmd", "info.json", "result_with_boxes.jpg"} <= {path.name for path in tmp_path.iterdir()}


def test_mini_says_that_it_invents_text_of_pages_that_are_not_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [copy, other] = (tmp_path / name for name in ("copy.png", "other.png"))
    copy.write_bytes(shipped("dev-3")[2].read_bytes())
    write_page("exactly_640", tmp_path).rename(other)
    told = {}
    for page in (copy, other):
        for checkpoint in ("mini", "synthetic:tiny"):
            assert main(["run", str(page), *QUICK, f"--checkpoint={checkpoint}", f"--out={tmp_path / 'out'}"]) == 0
            told[page.stem, checkpoint] = MINI_IS_FOR in capsys.readouterr().out
    assert [key for key, is_told in told.items() if is_told] == [("other", "mini")]


REFUSED = {
    "run absent.png": (10, "there is no page absent.png"),
    "run empty": (10, "the folder empty holds no images"),
    "run notes.md": (10, "notes.md cannot be read as an image"),
    "run --out=/proc/nope": (2, "/proc/nope cannot be made"),
    "run --max-new-tokens=0": (2, "'0' is not a number of tokens"),
    "run --preset=nope": (2, "there is no preset 'nope'"),
    "run --dtype=fp8": (2, "'fp8' is not one of float32"),
    "run --checkpoint=nope": (10, "'nope' is not a checkpoint"),
    "compare empty": (10, "the folder empty holds no images"),
    "compare notes.md --pages=empty": (10, "notes.md cannot be read as an image"),
    "bench . --max-new-tokens=0": (3, "'0' is not a number of tokens"),
    "vendor record code empty --presets=nope": (2, "there is no preset 'nope'"),
}
"""What can be known from the command line: the exit status, and what is said."""
IN_ONE = """
import sys
from pytest_dsocr.cli.main import main
sys.modules |= dict.fromkeys(("torch", "pytest_dsocr.engine.session"))  # not to be imported
for command in sys.argv[1:]:
    print(f"{command}: {main(command.split())}", file=sys.stderr)
"""


def test_bad_input_is_one_sentence_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.md").write_text("no image")
    done = subprocess.run(
        [sys.executable, "-c", IN_ONE, *REFUSED], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    for k, (command, (status, why)) in enumerate(REFUSED.items()):
        assert said[2 * k].startswith("dsocr: ")
        assert why in said[2 * k]
        assert said[2 * k + 1] == f"{command}: {status}"


def test_a_pdf_is_read_page_by_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", pdf_in(tmp_path), *QUICK, "--out", str(tmp_path / "out")]) == 0
    pages = [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("page  ")]
    assert pages == ["it-p001.png,", "it-p002.png,"]
    assert sorted(path.parent.name for path in tmp_path.glob("out/*/result.mmd")) == ["it-p001", "it-p002"]


def test_one_page_of_a_pdf_is_read(tmp_path: Path) -> None:
    assert main(["run", pdf_in(tmp_path), "--page=2", *QUICK, "--out", str(tmp_path / "out")]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["it-p002"]


def test_a_page_that_cannot_be_rendered_costs_itself_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = pypdfium2.PdfDocument.new()
    for side_inches in (1, 200):  # the second is larger than Pillow's limit
        document.new_page(side_inches * 72, side_inches * 72)
    document.save(tmp_path / "it.pdf")
    assert main(["run", str(tmp_path / "it.pdf"), *QUICK, "--out", str(tmp_path / "out")]) == 10
    told = capsys.readouterr()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["it-p001"]
    assert re.search(r"^left out    page 2 of .*it\.pdf would be", told.out, re.MULTILINE)
    assert told.err.startswith("dsocr: left out 1 page of ")


@pytest.mark.parametrize(
    ("number", "why"),
    [("3", "it.pdf has 2 pages, and no page 3; give --page=1 to --page=2"), ("0", "and no page 0")],
)
def test_a_page_that_a_pdf_has_not_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: str, why: str
) -> None:
    assert main(["run", pdf_in(tmp_path), f"--page={number}"]) == 2
    told = capsys.readouterr()
    assert (told.out, why in told.err) == ("", True)


def test_an_image_has_no_page_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(shipped("dev-3")[0]), "--page=1"]) == 2
    assert "--page is for PDFs" in capsys.readouterr().err


def test_a_pdf_without_pypdfium2_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pdf = pdf_in(tmp_path)
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    assert main(["run", pdf]) == 2
    assert capsys.readouterr().err == "dsocr: reading a PDF needs pypdfium2; pip install 'pytest-dsocr[pdf]'\n"


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"dsocr {pytest_dsocr.__version__}\n"


@pytest.mark.parametrize("command", [["run"], ["compare"], ["vendor", "setup"], ["vendor", "record"]])
def test_help_shows_defaults_as_a_user_types_them(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert not re.findall(r"None|False|PosixPath|\['|SUPPRESS", told)
    assert "(default: " in told


def pdf_in(folder: Path) -> str:
    """A PDF of two pages."""
    (folder / "it.pdf").write_bytes(pdf_of("red", "blue"))
    return str(folder / "it.pdf")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_dsocr", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
