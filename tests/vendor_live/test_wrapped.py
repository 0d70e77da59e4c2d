"""What wraps the vendor's model: it calls it as it likes, and its inputs and text are seen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from pytest_dsocr.subjects.protocol import Setup
from suites.contract.pages import write_page
from tests.checkout import CHECKOUT
from tests.vendor_live.conftest import vendor_folder

CHECKPOINT = "synthetic:small"
DOCS = CHECKOUT / "docs" / "adapters.md"

pytestmark = pytest.mark.filterwarnings("ignore")  # the vendor's code warns on every recent torch


@pytest.fixture(scope="module")
def example() -> Any:
    """The one of the documentation."""
    [code] = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names["MyWrapper"](Setup(CHECKPOINT))


def test_what_it_hands_on_is_what_the_reference_was_handed(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = make_case(write_page("portrait", tmp_path), "markdown", "tiny", 1)
    made = example.inputs(case.page, prompt=case.prompt, preset=case.preset)
    theirs = VendorRuntime.load(vendor_folder(), CHECKPOINT).inputs(case, keep_values=True).values
    assert theirs
    assert all(torch.equal(made[name], theirs[name]) for name in theirs)


def test_it_reads_up_to_the_ceiling(example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    case = make_case(write_page("portrait", tmp_path), "markdown", "tiny", 1)
    few, more = (
        example.read(case.page, prompt=case.prompt, preset=case.preset, max_new_tokens=tokens) for tokens in (2, 6)
    )
    assert 0 < len(few) < len(more)
    assert "generate" not in vars(example.vendor.model), "the method is as it was"


def test_a_model_that_is_not_called_is_told(example: Any) -> None:
    with pytest.raises(DsocrError, match="the model's generate was not called; name the method that is"):
        example.vendor.handed_to("generate", lambda: None)
