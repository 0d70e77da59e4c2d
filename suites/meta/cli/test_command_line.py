"""The command line as a user has it, in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_dsocr
from pytest_dsocr.cli.main import main
from pytest_dsocr.pages.shipped import shipped
from suites.meta.contract.test_pdf import pdf_of

QUICK = ("--preset=tiny", "--max-new-tokens=1")


def test_the_command_line_reads_its_drawn_page(tmp_path: Path) -> None:
    done = _run("run", "--max-new-tokens", "8", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[2].endswith("2 x 2 crops and the whole page, 702 prompt tokens, 693 of them image")
    assert "output      8 tokens, ended by length" in lines
    assert {"result.mmd", "info.json", "result_with_boxes.jpg"} <= {path.name for path in tmp_path.iterdir()}


def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    done = _run("run", str(tmp_path / "absent.png"), "--out", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("dsocr: ")
    assert "absent.png" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_pdf_is_read_page_by_page(tmp_path: Path) -> None:
    pdf = pdf_in(tmp_path)
    done = _run("run", pdf, *QUICK, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    pages = [line for line in done.stdout.splitlines() if line.startswith("page  ")]
    assert [line.split()[1] for line in pages] == ["it-p001.png,", "it-p002.png,"]
    assert sorted(path.parent.name for path in tmp_path.glob("out/*/result.mmd")) == ["it-p001", "it-p002"]


def test_one_page_of_a_pdf_is_read(tmp_path: Path) -> None:
    done = _run("run", pdf_in(tmp_path), "--page=2", *QUICK, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["it-p002"]


def test_a_page_that_a_pdf_has_not_is_refused(tmp_path: Path) -> None:
    done = _run("run", pdf_in(tmp_path), "--page=3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("it.pdf has 2 pages, and no page 3; give --page=1 to --page=2\n")


def test_an_image_has_no_page_number() -> None:
    done = _run("run", str(shipped("dev-3")[0]), "--page=1")
    assert done.returncode == 2
    assert "--page is for PDFs" in done.stderr


def test_a_pdf_without_pypdfium2_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['pypdfium2'] = None; from pytest_dsocr.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "run", pdf_in(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "dsocr: reading a PDF needs pypdfium2; pip install 'pytest-dsocr[pdf]'\n"


def test_the_version_is_told() -> None:
    assert _run("--version").stdout == f"dsocr {pytest_dsocr.__version__}\n"


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
