"""A changed copy of the vendor's files as a subject, ``fork:FOLDER``: what it changed in ``infer`` is found."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.cases.run import ask
from pytest_dsocr.compare.case import judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.reference.environment import FILES
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from pytest_dsocr.subjects.loading import level_before_loading, load_subject
from pytest_dsocr.subjects.protocol import Setup, level_of
from suites.contract.pages import write_page
from tests.vendor_live.conftest import vendor_folder

CHECKPOINT = "synthetic:small"
LIMITS = replace(tolerances("float32"), seam=1e-5, logits=1e-5)
INFER = "modeling_deepseekocr.py"

pytestmark = pytest.mark.filterwarnings("ignore")  # the vendor's code warns on every recent torch


@pytest.fixture(scope="module")
def reference() -> Any:
    return VendorRuntime.load(vendor_folder(), CHECKPOINT)


def report_of(folder: Path, reference: Any, tmp_path: Path) -> Any:
    subject = load_subject(f"fork:{folder}", Setup(CHECKPOINT))
    case = make_case(write_page("portrait", tmp_path), "markdown", "gundam", 24)
    return judge(ask(subject, reference, case), LIMITS)


def fork(folder: Path, old: str, new: str) -> Path:
    for name in FILES:
        shutil.copy(vendor_folder() / name, folder)
    text = (folder / INFER).read_text(encoding="utf-8")
    assert old in text
    (folder / INFER).write_text(text.replace(old, new), encoding="utf-8")
    return folder


def test_an_unchanged_copy_is_the_reference(reference: Any, tmp_path: Path) -> None:
    report = report_of(vendor_folder(), reference, tmp_path)
    assert report.passes, [f"{one.what}: {one.measured}" for one in report.comparisons if not one.passes]
    assert {"images_crop", "sam.page/0", "vision_fusion", "logits", "text"} <= {one.what for one in report.comparisons}


def test_other_pixels_of_its_infer_are_found(reference: Any, tmp_path: Path) -> None:
    folder = fork(tmp_path, ".to(torch.bfloat16)", ".to(torch.float16)")
    wrong = {one.what for one in report_of(folder, reference, tmp_path).comparisons if not one.passes}
    assert {"images_ori", "images_crop"} <= wrong


def test_what_it_tells_generate_is_its_policy(tmp_path: Path) -> None:
    folder = fork(tmp_path, "no_repeat_ngram_size = 20", "no_repeat_ngram_size = 7")
    subject: Any = load_subject(f"fork:{folder}", Setup(CHECKPOINT))
    assert (subject.policy.no_repeat_ngram_size, subject.policy.eos_id) == (7, 1)
    assert level_of(subject) == level_before_loading(f"fork:{folder}")
