"""The vendor's model as a subject, ``vendor:FOLDER``: through the session's stages it does what ``infer`` does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.cases.run import ask
from pytest_dsocr.cases.substitution import substitute
from pytest_dsocr.compare.case import judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.vendor_model import VendorModel
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from pytest_dsocr.subjects.loading import level_before_loading, load_subject
from pytest_dsocr.subjects.protocol import Setup, level_of
from pytest_dsocr.subjects.session import SessionSubject
from suites.contract.pages import write_page
from tests.vendor_live.conftest import vendor_folder

CHECKPOINT = "synthetic:small"
LIMITS = replace(tolerances("float32"), seam=1e-5, logits=1e-5)

pytestmark = pytest.mark.filterwarnings("ignore")  # the vendor's code warns on every recent torch


@pytest.fixture(scope="module")
def subject() -> Any:
    return load_subject(f"vendor:{vendor_folder()}", Setup(CHECKPOINT))


@pytest.fixture(scope="module")
def reference() -> Any:
    return VendorRuntime.load(vendor_folder(), CHECKPOINT)


def test_it_is_loaded_with_its_modules(subject: SessionSubject) -> None:
    assert isinstance(subject.session.model, VendorModel)
    assert level_of(subject) == level_before_loading(f"vendor:{vendor_folder()}")
    assert type(subject.module("model.sam_model.blocks.1")).__module__.endswith("deepencoder")


@pytest.mark.parametrize("preset", ["gundam", "tiny"])
def test_it_is_the_reference_from_inputs_to_files(
    preset: str, subject: SessionSubject, reference: Any, tmp_path: Path
) -> None:
    case = make_case(write_page("portrait", tmp_path), "markdown", preset, 24)
    exchange = ask(subject, reference, case)
    report = judge(exchange, LIMITS)
    assert report.passes, [f"{one.what}: {one.measured}" for one in report.comparisons if not one.passes]
    compared = {one.what for one in report.comparisons if one.verdict in (Verdict.MATCH, Verdict.DRIFT)}
    assert compared >= {"input_ids", "sam.page/0", "sam.page", "clip.page/0", "vision_fusion", "prefill/0", "prefill"}
    assert compared >= {"logits", "tokens", "text", "result.mmd", "artefacts"}
    assert substitute(subject, judge(exchange, LIMITS)) == ()
