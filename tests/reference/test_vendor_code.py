"""The loader of a vendor folder, where what runs is what the hashes are of."""

import hashlib
import os
import py_compile
import sys
from pathlib import Path

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.reference.vendor_code.code import IMPORTED_AS, load_vendor_code
from tests.reference.conftest import STAND_IN, copy_stand_in


def test_an_older_source_compiled_beside_it_does_not_run(tmp_path: Path) -> None:
    """Python takes a ``__pycache__`` for fresh where the source has the same size and time."""
    folder = copy_stand_in(tmp_path)
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


def test_another_folder_is_imported_anew(tmp_path: Path) -> None:
    first, folder = load_vendor_code(STAND_IN), copy_stand_in(tmp_path)
    with (folder / "deepencoder.py").open("a", encoding="utf-8") as file:
        file.write("\nMARK = 1\n")
    second = load_vendor_code(folder)
    assert second.encoder.MARK == 1
    assert not hasattr(first.encoder, "MARK")
    assert [name for name in first.sha256 if first.sha256[name] != second.sha256[name]] == ["deepencoder.py"]
    assert second.modeling.__name__.startswith(IMPORTED_AS)
    assert {path.name for path in folder.iterdir()} == {path.name for path in STAND_IN.glob("*.py")}
    (folder / "conversation.py").write_text("import no_such_package\n", encoding="utf-8")
    lacking = r"cannot be imported here \(No module named 'no_such_package'\); run in an env"
    with pytest.raises(DsocrError, match=lacking):
        load_vendor_code(folder)
