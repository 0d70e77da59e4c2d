"""The vendor's model as a subject, refused where its code does not run; where it does, the live suites ask it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from pytest_dsocr.adapters import vendor
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.subjects.loading import load_subject
from pytest_dsocr.subjects.protocol import Setup


@pytest.mark.parametrize("installed", ["5.1.0", "4.460.0", "none"])
def test_another_transformers_is_refused(installed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if installed == "none":
            raise PackageNotFoundError(package)
        return installed

    monkeypatch.setattr(vendor, "version", version)
    with pytest.raises(DsocrError) as caught:
        load_subject(f"vendor:{tmp_path}", Setup("synthetic:tiny"))
    assert str(caught.value).startswith(
        f"the vendor's code in {tmp_path} runs with transformers 4.46 and here is {installed}; run pytest in an "
        "environment with transformers==4.46.3, "
    )


def test_a_folder_without_the_vendors_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "version", lambda package: "4.46.3")
    with pytest.raises(DsocrError, match=r"modeling_deepseekocr\.py"):
        load_subject(f"vendor:{tmp_path}", Setup("synthetic:tiny"))
