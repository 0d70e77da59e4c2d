"""``dsocr compare`` as a user runs it, on recordings of the vendor's code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from pytest_dsocr.__main__ import main
from pytest_dsocr.vendor.files import FILES
from suites.contract.pages import rgb, write_page
from suites.meta.recordings import FOLDER
from suites.meta.vendor.conftest import STAND_IN

Said = Callable[[], tuple[list[str], str]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    def read() -> tuple[list[str], str]:
        captured = capsys.readouterr()
        return captured.out.splitlines(), captured.err

    return read


def compare(*arguments: str | Path) -> int:
    options = ("--reference", FOLDER, "--checkpoint", "synthetic:small")
    return main(["compare", *map(str, (*options, *arguments))])


def test_a_session_like_the_vendors_ends_in_0(tmp_path: Path, said: Said) -> None:
    page = write_page("tiny", tmp_path)
    assert compare(page, "--out", tmp_path / "out") == 0
    lines, errors = said()
    assert errors == ""
    assert lines[0].startswith("reference   recorded on 20")
    [case] = [line for line in lines if "tiny-gundam-markdown" in line]
    assert case.split()[0] in ("DRIFT", "MATCH")
    [boxes] = [line for line in lines if line.startswith("boxes")]
    assert boxes.split() == ["boxes", "-", "-", "-", "1", "-"]
    assert "19 comparisons in 1 cases" in lines


def test_the_report_holds_every_comparison_and_the_page_both_sides(tmp_path: Path, said: Said) -> None:
    page = write_page("tiny", tmp_path)
    compare(page, "--out", tmp_path / "out")
    report = json.loads((tmp_path / "out" / "compare.json").read_text(encoding="utf-8"))
    [case] = report["cases"]
    assert len(case["comparisons"]) == 19
    assert case["first_wrong"] is case["cause"] is None
    assert case["case"]["page"] == "tiny.png"
    assert report["reference"]["checkpoint"] == "synthetic:small"
    with Image.open(tmp_path / "out" / "pages" / "tiny-gundam-markdown.jpg") as sheet:
        assert sheet.width > 2 * sheet.height
    assert said()[0][-1] == f"written     {tmp_path}/out: compare.json, and each page with the boxes of both sides"


def test_a_wrong_verdict_ends_in_1_and_is_told(tmp_path: Path, said: Said) -> None:
    """Rounding to bf16 on the GPU gave this page's last prompt token another expert."""
    page = write_page("1500_square", tmp_path)
    of_gpu = ("--reference-device", "nvidia-h200", "--reference-dtype", "bfloat16")
    assert compare(page, *of_gpu, "--out", tmp_path / "out") == 1
    lines, _ = said()
    [first] = [line.strip() for line in lines if line.strip().startswith("first wrong")]
    assert first.startswith("first wrong  prefill, after 13 that are right: relative error")
    assert any(line.strip().startswith("check        the decoder, for vision is right") for line in lines)
    [case] = json.loads((tmp_path / "out" / "compare.json").read_text(encoding="utf-8"))["cases"]
    assert case["first_wrong"] == "prefill"
    assert case["cause"].startswith("the decoder")
    assert case["findings"] == [], "no session of this machine has the features that the GPU gave"
    told = [line.split()[:2] for line in lines if line.startswith("    ") and not line.startswith("     ")]
    assert ["WRONG", "prefill:"] in told
    assert any("the reference has" in line for line in lines)


def test_any_subject_may_be_named(tmp_path: Path, said: Said) -> None:
    page = write_page("tiny", tmp_path)
    name = "suites.meta.subjects.examples.one_method:OneMethod"
    assert compare(page, "--subject", name) == 0
    lines, _ = said()
    assert lines[1] == f"subject     {name}, L0, synthetic:small, cpu, float32, eager"
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.startswith(("tokens", "text "))}
    assert rows == {"tokens": ["-", "-", "-", "-", "1"], "text": ["-", "-", "-", "1", "-"]}


def test_what_the_references_tensors_make_right_is_told(tmp_path: Path, said: Said) -> None:
    page = write_page("641_wide", tmp_path)
    swapped = "suites.meta.subjects.examples.swapped_halves:SwappedHalves"
    assert compare(page, "--subject", swapped, "--out", tmp_path) == 1
    finding = "tokens are right when given the reference's vision features"
    assert f"    substituted  {finding}" in said()[0]
    [case] = json.loads((tmp_path / "compare.json").read_text(encoding="utf-8"))["cases"]
    assert (case["first_wrong"], case["findings"]) == ("vision_fusion", [finding])


def test_code_that_is_not_what_was_recorded_runs_live_with_a_note(tmp_path: Path, said: Said) -> None:
    page = write_page("tiny", tmp_path)
    live = ("--reference", STAND_IN, "--env", sys.prefix, "--checkpoint", "synthetic:tiny")
    assert compare(page, *live, "--presets", "tiny", "--max-new-tokens", "2") == 0
    lines, _ = said()
    assert lines[0].startswith("reference   live, synthetic:tiny, cpu, float32, eager, vendor's file ")
    assert lines[1] == f"note        {', '.join(FILES)}: not as in golden/vendor/anchors.json; see dsocr vendor inspect"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--checkpoint", "synthetic:small@7"), "holds no recording of synthetic-small-7/cpu-float32-eager"),
        (("--dtype", "bfloat16"), "but synthetic-small/cpu-float32-eager (dtype float32)"),
        (("--reference", "nowhere"), "there is no folder nowhere; give one with the vendor's Python files"),
        (("--presets", "large"), "does not hold other-large-markdown"),
        (
            ("--presets", "large", "--subject", "absent:Reader"),
            "'absent:Reader': there is no module absent, neither in ",
        ),
        ((), "the recording holds none of these pages; give the pages that were recorded"),
    ],
)
def test_what_cannot_be_compared_ends_in_2(
    arguments: tuple[str, ...], message: str, tmp_path: Path, said: Said
) -> None:
    page = tmp_path / "other.png"
    rgb(64, 48).save(page)
    assert compare(page, *arguments) == 2
    assert message in said()[1]


def test_pages_of_a_recording_may_stand_on_a_list(tmp_path: Path, said: Said) -> None:
    write_page("tiny", tmp_path)
    (tmp_path / "mine.txt").write_text("# one page\ntiny.png\n", encoding="utf-8")
    assert compare(tmp_path / "mine.txt") == 0
    assert "19 comparisons in 1 cases" in said()[0]


def test_two_pages_of_one_recorded_name_are_refused(tmp_path: Path, said: Said) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write_page("tiny", tmp_path / folder)
    assert compare(tmp_path / "one", tmp_path / "two") == 2
    assert f"{tmp_path}/one/tiny.png and {tmp_path}/two/tiny.png are both tiny-gundam-markdown;" in said()[1]


def test_a_page_with_other_pixels_is_a_fault_of_the_reference(tmp_path: Path, said: Said) -> None:
    page = tmp_path / "tiny.png"
    rgb(32, 20, seed=99).save(page)
    assert compare(page) == 2
    assert "tiny.png has other pixels than the page recorded under its name" in said()[1]


def test_what_is_in_the_way_of_the_report_is_told(tmp_path: Path, said: Said) -> None:
    page = write_page("tiny", tmp_path)
    (tmp_path / "taken").write_text("a file")
    assert compare(page, "--out", tmp_path / "taken") == 2
    assert (
        f"{tmp_path}/taken/pages/tiny-gundam-markdown.jpg cannot be written (Not a directory); give a folder"
        in said()[1]
    )
