"""What wraps the vendor's model: it calls it as it likes, and its inputs and text are seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.adapters.wrapped import Wrapped
from pytest_dsocr.contract.presets import PRESETS
from pytest_dsocr.contract.prompt import PROMPTS
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from pytest_dsocr.subjects.protocol import Setup
from suites.contract.pages import write_page
from suites.meta.vendor_live.conftest import vendor_folder

CHECKPOINT = "synthetic:small"

pytestmark = pytest.mark.filterwarnings("ignore")  # the vendor's code warns on every recent torch


@pytest.fixture(scope="module")
def wrapped() -> Wrapped:
    return Wrapped(vendor_folder(), Setup(CHECKPOINT))


def infer(wrapped: Wrapped, page: Path, out: Path) -> Any:
    sizes = {"base_size": 512, "image_size": 512, "crop_mode": False}
    return wrapped.model.infer(
        wrapped.tokenizer,
        prompt=PROMPTS["markdown"],
        image_file=str(page),
        output_path=str(out),
        eval_mode=True,
        **sizes,
    )


def test_what_it_hands_on_is_what_the_reference_was_handed(wrapped: Wrapped, tmp_path: Path) -> None:
    page = write_page("portrait", tmp_path)
    made = wrapped.handed_to("generate", lambda: infer(wrapped, page, tmp_path))
    case = make_case(page, "markdown", PRESETS["tiny"].name, 1)
    theirs = VendorRuntime.load(vendor_folder(), CHECKPOINT).inputs(case, keep_values=True).values
    assert theirs
    assert all(torch.equal(made[name], theirs[name]) for name in theirs)


def test_it_reads_up_to_the_ceiling(wrapped: Wrapped, tmp_path: Path) -> None:
    page, texts = write_page("portrait", tmp_path), []
    for tokens in (2, 6):
        with wrapped.watched("generate", tokens):
            texts.append(infer(wrapped, page, tmp_path))
    assert 0 < len(texts[0]) < len(texts[1])
    assert "generate" not in vars(wrapped.model), "the method is as it was"


def test_a_model_that_is_not_called_is_told(wrapped: Wrapped) -> None:
    with pytest.raises(DsocrError, match="the model's generate was not called; name the method that is"):
        wrapped.handed_to("generate", lambda: None)
