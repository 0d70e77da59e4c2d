"""Python files of this package and its suites, and their hash, which differs if one was patched."""

import hashlib
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from pytest_dsocr.base.files import sha256
from pytest_dsocr.base.words import PACKAGE

PARTS = ("pytest_dsocr", "suites")
STATUS = ("git", "status", "--porcelain", "--untracked-files=all", "--", *PARTS)


def own_folders() -> tuple[Path, Path]:
    """Return the folders of the package and of the suites, which an installation contains."""
    installed = PACKAGE / "suites"
    return PACKAGE, installed if installed.is_dir() else PACKAGE.parent / "suites"


def own_files() -> Mapping[str, Path]:
    """Return the files by a name that is the same in a wheel and in a checkout."""
    found: dict[str, Path] = {}
    for part, folder in zip(PARTS, own_folders(), strict=True):
        files = {f"{part}/{path.relative_to(folder).as_posix()}": path for path in folder.rglob("*.py")}
        found |= {name: path for name, path in files.items() if not name.startswith("pytest_dsocr/suites/")}
    return dict(sorted(found.items()))


@cache
def own_sha256() -> str:
    """Hash the names and contents of all files."""
    found = hashlib.sha256()
    for name, path in own_files().items():
        found.update(f"{name} {sha256(path.read_bytes())}\n".encode())
    return found.hexdigest()


def changed_files() -> list[str]:
    """Return the files that differ from the wheel's RECORD or, in a checkout, from its commit."""
    if own_folders()[1].parent != PACKAGE:
        folder = PACKAGE.parent
        found = subprocess.run(STATUS, cwd=folder, capture_output=True, text=True, check=False)
        return [line[3:] for line in found.stdout.splitlines() if line.endswith(".py")]
    return [*_unlike_record()]


def _unlike_record() -> Iterator[str]:
    """Yield the installed files without an equal entry in the wheel's RECORD."""
    recorded = {str(one): one.hash.value for one in metadata.files("pytest-dsocr") or () if one.hash}
    for path in own_files().values():
        name = f"{PACKAGE.name}/{path.relative_to(PACKAGE).as_posix()}"
        digest = urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")
        if recorded.get(name) != digest:
            yield name
