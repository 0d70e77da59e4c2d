"""One row run: an environment of its own, what the row needs in it, and the default suites."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from ci.implementations.llama import LlamaCpp
from ci.implementations.rows import TORCH, Row
from ci.implementations.told import DSOCR, downloaded, told
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.reference.environment import FILES, check_vendor_folder

CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Given:
    """What a row needs that cannot be installed."""

    sources: Path | None = None
    """A clone of its repository."""
    vendor: Path | None = None
    """The vendor's Python files."""


class Work:
    """A row's folder.

    Args:
        row: what is run.
        folder: where its environment, sources and results lie; kept, so that a second run is quick.
        given: what its user has.
    """

    def __init__(self, row: Row, folder: Path, given: Given = Given()) -> None:
        self.row, self.folder, self.given = row, folder.absolute(), given
        self.python = self.folder / "env" / "bin" / "python"
        self.out = self.folder / "out" / row.program

    def run(self, options: Sequence[str]) -> int:
        """Install what is missing, and run the suites; give their exit status.

        Raises:
            DsocrError: where something is missing that cannot be installed, or a command fails.
        """
        self._check()
        self._install()
        names = {"fork": str(self.fork())} if self.row.is_fork else {}
        serving: AbstractContextManager[None] = nullcontext()
        if self.row.program:
            llama = LlamaCpp(self.folder, self.python)
            names = llama.built(self.row.program)
            serving = llama.serving(names, self.row.program) if self.row.serves else serving
        subject = self.row.subject.format(**names) if names else self.row.subject
        command: list[str | Path] = [
            self.python,
            "-c",
            DSOCR,
            "compare",
            f"--subject={subject}",
            f"--out={self.out}",
            *options,
        ]
        with serving:
            return subprocess.run(command, env=self._env()).returncode

    def _check(self) -> None:
        if self.row.is_fork or self.row.wraps:
            if self.given.vendor is None:
                raise DsocrError("this row needs the vendor's Python files; name their folder: --vendor=FOLDER")
            check_vendor_folder(self.given.vendor)
        if self.row.repository and not (self.given.sources and (self.given.sources / self.row.inside).is_dir()):
            where = f"{self.row.repository} at commit {self.row.commit}"
            raise DsocrError(f"this row needs a clone of {where}; name its folder: --sources=FOLDER")

    def _env(self) -> dict[str, str]:
        folders = [CHECKOUT, self.folder / "unpacked"]
        if self.given.sources and not self.row.is_fork:
            folders.append(self.given.sources.absolute() / self.row.inside)
        vendor = {"DSOCR_VENDOR": str(self.given.vendor.absolute())} if self.given.vendor else {}
        return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), **vendor}

    def _install(self) -> None:
        if not self.python.is_file():
            told([sys.executable, "-m", "venv", self.folder / "env"])
        done = self.folder / "installed"
        if done.is_file():
            return
        told([self.python, "-m", "pip", "install", "-q", TORCH, "-e", CHECKOUT, *self.row.packages])
        if self.row.alone:
            told([self.python, "-m", "pip", "install", "-q", "--no-deps", *self.row.alone])
        if self.row.wheel:
            [wheel] = downloaded(self.python, self.folder / "wheels", [self.row.wheel], "*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(self.folder / "unpacked", self.row.files)
        done.write_text("")

    def fork(self) -> Path:
        """Put the fork's files over the vendor's; give the folder."""
        assert self.given.vendor
        assert self.given.sources
        folder = self.folder / "fork"
        folder.mkdir(exist_ok=True)
        for name in FILES:
            theirs = self.given.sources / self.row.inside / name
            shutil.copy(theirs if theirs.is_file() else self.given.vendor / name, folder)
        return folder
