"""The figures of the vendor's ``test_compress`` are ours, for every shipped page in every preset.

Nothing is read: in place of ``generate`` stand tokens that are given, so that the text is as long as a page's.
"""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.cost.workload import Workload, valid_image_tokens
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.vendor_code.code import vendor_on_cpu
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from tests.cost.test_workload import FACTS
from tests.vendor_live.conftest import vendor_folder

TEXT_TOKENS = 700

pytestmark = pytest.mark.filterwarnings("ignore")  # the vendor's code warns on every recent torch


@pytest.fixture(scope="module")
def vendor() -> VendorRuntime:
    return VendorRuntime.load(vendor_folder(), "synthetic:tiny")


def printed_of(
    vendor: VendorRuntime, page: Path, preset: str, out: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """What ``infer`` prints of one page, by its words."""
    printed: dict[str, Any] = {}

    def write(*words: Any, **_: Any) -> None:
        if len(words) == 2:
            printed[str(words[0]).strip(" :")] = words[1]

    def written(ids: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch.cat([ids, torch.arange(300, 300 + TEXT_TOKENS)[None] % 200 + 3], dim=1)

    sizes = DEFAULT.presets[preset]
    monkeypatch.setattr(sys.modules[type(vendor.model).__module__], "print", write, raising=False)
    monkeypatch.setattr(vendor.model, "generate", written)
    with vendor_on_cpu(vendor.model):
        vendor.model.infer(
            vendor.tokenizer,
            prompt=DEFAULT.prompts["free"],
            image_file=str(page),
            output_path=str(out),
            base_size=sizes.base_size,
            image_size=sizes.image_size,
            crop_mode=sizes.crop,
            test_compress=True,
        )
    return printed


@pytest.mark.parametrize("preset", DEFAULT.presets)
def test_shipped_pages(vendor: VendorRuntime, preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for page in shipped("all"):
        size = load_image(page).size
        printed = printed_of(vendor, page, preset, tmp_path, monkeypatch)
        found = valid_image_tokens(Workload(size, DEFAULT.presets[preset], 5, 1))
        assert found == printed["valid image tokens"]
        assert printed["image size"] == size
        if page.stem in FACTS:
            assert FACTS[page.stem][[*DEFAULT.presets].index(preset)] == printed["valid image tokens"]
