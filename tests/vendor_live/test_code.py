"""The loader of the vendor's code: what it says was imported is what was imported."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_dsocr.reference.environment import FILES
from pytest_dsocr.reference.vendor_code.code import load_vendor_code
from tests.vendor_live.conftest import vendor_folder

pytestmark = pytest.mark.filterwarnings("ignore")  # the vendor's code warns on every recent torch


def test_another_folder_is_imported_anew_and_its_overrides_are_listed_again(tmp_path: Path) -> None:
    first = load_vendor_code(vendor_folder())
    for name in FILES:
        shutil.copy(vendor_folder() / name, tmp_path)
    with (tmp_path / "modeling_deepseekocr.py").open("a", encoding="utf-8") as file:
        file.write("\nMARK = 1\n")
    second = load_vendor_code(tmp_path)
    assert second.modeling.MARK == 1
    assert [name for name in FILES if first.sha256[name] != second.sha256[name]] == ["modeling_deepseekocr.py"]
    assert second.overrides == first.overrides
