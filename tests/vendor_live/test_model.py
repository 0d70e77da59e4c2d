"""The vendor's model as a subject: as it is, ``vendor:FOLDER``, as a fork changed it, and inside of a wrapper."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.vendor_model import VendorModel
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from pytest_dsocr.run.sides import ask
from pytest_dsocr.run.substitution import substitute
from pytest_dsocr.subjects.loading import level_before_loading, load_subject
from pytest_dsocr.subjects.protocol import Setup, level_of
from suites.contract.pages import write_page
from tests.checkout import CHECKOUT
from tests.recordings import FILES
from tests.vendor_live.conftest import vendor_folder

CHECKPOINT = "synthetic:small"
LIMITS = replace(tolerances("float32"), seam=1e-5, logits=1e-5)
INFER = "modeling_deepseekocr.py"

pytestmark = pytest.mark.filterwarnings("ignore")  # the vendor's code warns on every recent torch


@pytest.fixture(scope="module")
def reference() -> Any:
    return VendorRuntime.load(vendor_folder(), CHECKPOINT)


def case_in(folder: Path, preset: str = "gundam", ceiling: int = 24) -> Case:
    return make_case(write_page("portrait", folder), "markdown", preset, ceiling, family=DEEPSEEK_OCR)


def failing(report: CaseReport) -> list[str]:
    return [one.what for one in report.comparisons if not one.passes]


def fork(folder: Path, old: str, new: str) -> Path:
    """Write a copy of the vendor's files, one text of whose main file is another."""
    for name in FILES:
        shutil.copy(vendor_folder() / name, folder)
    text = (folder / INFER).read_text(encoding="utf-8")
    assert old in text
    (folder / INFER).write_text(text.replace(old, new), encoding="utf-8")
    return folder


def test_it_is_the_reference_from_inputs_to_files(reference: Any, tmp_path: Path) -> None:
    spec = f"vendor:{vendor_folder()}"
    subject: Any = load_subject(spec, Setup(CHECKPOINT))
    assert isinstance(subject.engine.model, VendorModel)
    assert level_of(subject) == level_before_loading(spec)
    assert type(subject.module("model.sam_model.blocks.1")).__module__.endswith("deepencoder")
    report = judge(ask(subject, reference, case_in(tmp_path)), LIMITS)
    assert failing(report) == []
    compared = {one.what for one in report.comparisons if one.verdict in (Verdict.MATCH, Verdict.DRIFT)}
    assert compared >= {"input_ids", "sam.page/0", "sam.page", "clip.page/0", "vision_fusion", "prefill/0", "prefill"}
    assert compared >= {"logits", "tokens", "text", "result.mmd", "artefacts"}
    assert substitute(subject, report).findings == ()


def test_an_unchanged_fork_is_the_reference_and_other_pixels_of_its_infer_are_found(
    reference: Any, tmp_path: Path
) -> None:
    for folder, wrong in (
        (vendor_folder(), set()),
        (fork(tmp_path, ".to(torch.bfloat16)", ".to(torch.float16)"), {"images_ori", "images_crop"}),
    ):
        subject: Any = load_subject(f"fork:{folder}", Setup(CHECKPOINT))
        assert (subject.policy.no_repeat_ngram_size, subject.policy.eos_id) == (20, 1)
        assert level_of(subject) == level_before_loading(f"fork:{folder}")
        report = judge(ask(subject, reference, case_in(tmp_path)), LIMITS)
        assert {*failing(report)} >= wrong
        assert bool(failing(report)) is bool(wrong)
        assert {"images_crop", "sam.page/0", "vision_fusion", "logits", "text"} <= {
            one.what for one in report.comparisons
        }


def test_a_wrapper_calls_the_model_as_it_likes_and_its_inputs_and_text_are_seen(
    reference: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one of the documentation."""
    monkeypatch.chdir(tmp_path)
    text = (CHECKOUT / "docs" / "adapters.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    example, case = names["MyWrapper"](Setup(CHECKPOINT)), case_in(tmp_path, "tiny", 1)
    made = example.inputs(case.page, prompt=case.prompt, preset=case.preset)
    expected = reference.observe(case, keep_values=True).inputs.values
    assert expected
    assert all(torch.equal(made[name], expected[name]) for name in expected)
    few, more = (
        example.read(case.page, prompt=case.prompt, preset=case.preset, max_new_tokens=tokens) for tokens in (2, 6)
    )
    assert 0 < len(few) < len(more)
    assert "generate" not in vars(example.vendor.model), "the method is as it was"
    with pytest.raises(DsocrError, match="the model's generate was not called; name the method that is"):
        example.vendor.handed_to("generate", lambda: None)
