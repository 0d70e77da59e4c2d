"""The loader of a vendor folder: what runs is what the hashes are of."""

from __future__ import annotations

import hashlib
import os
import py_compile
import shutil
import sys
from pathlib import Path

import pytest

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.reference.vendor_code.code import IMPORTED_AS, load_vendor_code
from tests.reference.conftest import STAND_IN


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STAND_IN, tmp_path / "code", ignore=shutil.ignore_patterns("__pycache__")))


def test_an_older_source_compiled_beside_it_does_not_run(folder: Path) -> None:
    """Python takes a ``__pycache__`` for fresh where the source has the same size and time."""
    path = folder / "conversation.py"
    source = path.read_text(encoding="utf-8")
    path.write_text(f"{source}\nMARK = 1\n", encoding="utf-8")
    made = path.stat()
    py_compile.compile(str(path))
    path.write_text(f"{source}\nMARK = 2\n", encoding="utf-8")
    os.utime(path, ns=(made.st_atime_ns, made.st_mtime_ns))
    code = load_vendor_code(folder)
    assert vars(sys.modules[f"{IMPORTED_AS}.conversation"])["MARK"] == 2
    assert code.sha256["conversation.py"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_nothing_is_written_into_the_folder(folder: Path) -> None:
    before = sorted(path.name for path in folder.rglob("*"))
    load_vendor_code(folder)
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_what_cannot_be_imported_is_told_with_what_it_needs(folder: Path) -> None:
    (folder / "conversation.py").write_text("import no_such_package\n", encoding="utf-8")
    with pytest.raises(
        DsocrError, match=r"cannot be imported here \(No module named 'no_such_package'\); run in an env"
    ):
        load_vendor_code(folder)


def test_another_folder_is_imported_anew(folder: Path) -> None:
    first = load_vendor_code(STAND_IN)
    with (folder / "deepencoder.py").open("a", encoding="utf-8") as file:
        file.write("\nMARK = 1\n")
    second = load_vendor_code(folder)
    assert second.encoder.MARK == 1
    assert not hasattr(first.encoder, "MARK")
    assert [name for name in first.sha256 if first.sha256[name] != second.sha256[name]] == ["deepencoder.py"]
    assert second.modeling.__name__.startswith(IMPORTED_AS)
