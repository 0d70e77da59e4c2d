"""Run over a subject with a mistake: the failure, the result and the summary name the mistake."""

import json
import subprocess
import sys
from pathlib import Path

from pytest_dsocr.pages.page_list import shipped
from tests.checkout import CHECKOUT

TEST = """
def test_all(dsocr_report, dsocr_check):
    dsocr_check(dsocr_report)


def test_text(dsocr_report, dsocr_check):
    dsocr_check(dsocr_report, "text")
"""
WORDS = "with CLIP's exact GELU in place of the quick GELU"


def run(folder: Path, tests: str, *flags: str, out: bool = True) -> str:
    """Return the output of a run on the quickest page."""
    (folder / "test_port.py").write_text(tests)
    [page] = (page for page in shipped("dev-3") if page.stem == "figures_201")
    options = [
        "--dsocr-subject=pytest_dsocr.explain.planted:CLP_01",
        f"--dsocr-pages={page}",
        *["--dsocr-out=out"] * out,
        "--dsocr-explain=600",
        *flags,
    ]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert said.returncode == 1, said.stdout + said.stderr
    return said.stdout


def test_the_mistake_is_named_everywhere(tmp_path: Path) -> None:
    said = run(tmp_path, TEST)
    [case] = json.loads((tmp_path / "out" / "dsocr.json").read_text())["cases"]
    assert said.count("explained  ") == 1, "one test shows it, and the others refer to that one"
    assert "check           CLIP" not in said, "a proof leaves no room for a guess"
    assert case["proven"]
    assert case["explained"].startswith(WORDS)
    assert WORDS in (tmp_path / "out" / "summary.md").read_text()
    assert WORDS in (tmp_path / "out" / "index.html").read_text().replace("&#39;", "'")


def test_a_test_of_ones_own_is_shown_the_proof_as_well(tmp_path: Path) -> None:
    """The test compares a later stage than that of the mistake, and no result is written."""
    own = "def test_logits(dsocr_report, dsocr_check):\n    dsocr_check(dsocr_report, 'logits')\n"
    lines = run(tmp_path, own, "--junit-xml=junit.xml", out=False).splitlines()
    reported = [line for line in lines if line.startswith(("explained  ", "first broke  "))]
    assert [WORDS in line for line in reported] == [True, True]
    assert reported[1].startswith("first broke     clip.")
    assert "(proven)" in " ".join(lines[lines.index(reported[1]) : -1])
    junit = (tmp_path / "junit.xml").read_text()
    assert junit.count(WORDS.replace("'", "&apos;")) + junit.count(WORDS) >= 3, "the run's, the test's, its text"


def test_a_wrong_epsilon_on_the_second_checkpoint_is_named(tmp_path: Path) -> None:
    """No page of the first checkpoint shows it; and the report names no picture, as none is drawn."""
    planted = "--dsocr-subject=pytest_dsocr.explain.planted:CLP_02"
    options = ["-k", "float32", planted, "--dsocr-explain=600", f"--dsocr-out={tmp_path / 'out'}"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "suites/checkpoint", *options]
    said = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False).stdout
    assert (
        "explained       with an epsilon of 1e-06 in place of 1e-05 in the norms of CLIP's blocks, the engine" in said
    )
    assert "\npicture" not in said
